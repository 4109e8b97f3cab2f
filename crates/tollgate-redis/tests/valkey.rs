//! Valkey in the place of Redis: the same decisions, by script and by function, alone and in a cluster.
#![cfg(unix)]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tollgate_core::{Charge, Cost, Operation, Quota, Store, StoreErrorKind, Timestamp};
use tollgate_redis::{RedisStore, TimeSource};
use tollgate_testkit::redis_server::Builder;
use tollgate_testkit::{RedisCluster, RedisServer, conformance, timeline};

const PATIENT: Duration = Duration::from_secs(10);

/// Where `cargo xtask setup` puts it.
const TOOL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/valkey-server");

fn valkey() -> Builder {
    let named = env::var_os("TOLLGATE_VALKEY_SERVER").filter(|path| !path.is_empty());
    let installed = || Some(PathBuf::from(TOOL)).filter(|path| path.is_file()).map(OsString::from);
    let in_path = || {
        let path = env::var_os("PATH")?;
        env::split_paths(&path).map(|dir| dir.join("valkey-server")).find(|file| file.is_file())
    };
    let binary = named.or_else(installed).or_else(|| in_path().map(OsString::from));
    let binary = binary.unwrap_or_else(|| {
        panic!(
            "there is no valkey-server: run `cargo xtask setup`, or put it into PATH, or set \
             TOLLGATE_VALKEY_SERVER to its path"
        )
    });
    RedisServer::builder().binary(binary)
}

#[tokio::test]
async fn g8_valkey_reproduces_every_timeline_by_script_and_by_function() {
    let server = valkey().start().unwrap();
    let info = server.command(&["INFO", "server"]).unwrap();
    assert!(info.text().unwrap().contains("server_name:valkey"), "{info:?}");
    for functions in [false, true] {
        let store = RedisStore::builder(server.url())
            .prefix(if functions { "function" } else { "script" })
            .functions(functions)
            .time_source(TimeSource::Client)
            .timeout(PATIENT)
            .connect()
            .await
            .unwrap();
        for file in timeline::ALL {
            for timeline in timeline::parse(file).unwrap() {
                conformance::replay(&store, &timeline).await.unwrap();
            }
        }
        assert_eq!(store.status().script_reloads, 0);
    }
}

#[tokio::test]
async fn what_valkey_forgets_refuses_or_redirects_is_understood() {
    let server = valkey().start().unwrap();
    let quota = Quota::new("1/day".parse().unwrap(), 10).unwrap();
    let charges = [Charge::new("key", &quota, Cost::ONE)];
    for functions in [false, true] {
        let url = format!("valkey://{}", server.address());
        let builder = RedisStore::builder(url).functions(functions).timeout(PATIENT);
        let store = builder.connect().await.unwrap();
        let spend = || store.apply(Operation::Spend, &charges, Timestamp::EPOCH);
        let _ = server.command(&["SCRIPT", "FLUSH"]).unwrap();
        let _ = server.command(&["FUNCTION", "FLUSH"]).unwrap();
        assert!(spend().await.unwrap()[0].is_allow());
        assert_eq!(store.status().script_reloads, 1);
        let _ = server.command(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
        let error = spend().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused);
        assert!(error.to_string().contains("it is a replica"), "{error}");
        let _ = server.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
        let _ = server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        let error = spend().await.unwrap_err();
        assert!(error.to_string().ends_with("raise its maxmemory"), "{error}");
        let _ = server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    }
}

#[tokio::test]
async fn a_valkey_cluster_serves_keys_of_all_nodes() {
    let cluster = RedisCluster::start_with(3, &valkey()).unwrap();
    let store = RedisStore::cluster(cluster.urls()).timeout(PATIENT).connect().await.unwrap();
    let quota = Quota::new("1/day".parse().unwrap(), 10).unwrap();
    let keys = ["a", "b", "c", "d", "e", "f"];
    let charges = keys.map(|key| Charge::new(key, &quota, Cost::ONE));
    for left in [9, 8] {
        let decided = store.apply(Operation::Spend, &charges, Timestamp::EPOCH).await.unwrap();
        assert!(decided.iter().all(|one| one.remaining() == left), "{decided:?}");
    }
}
