//! How connections come about, end and are replaced (G10).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_core::{
    Charge, Cost, Decision, Operation, Quota, Store, StoreError, StoreErrorKind, Timestamp,
};
use tollgate_redis::{RedisStatus, RedisStore, RedisStoreBuilder};
use tollgate_testkit::fault_proxy::{Direction, Fault};
use tollgate_testkit::{FaultProxy, RedisServer};

/// Short enough to wait for, and longer than what a loaded machine needs to answer.
const TIMEOUT: Duration = Duration::from_millis(200);

/// What a loaded machine may add to a deadline.
const SLACK: Duration = Duration::from_millis(500);

/// A deadline for tests that are not about it.
const PATIENT: Duration = Duration::from_secs(10);

async fn spend(store: &RedisStore) -> Result<Decision, StoreError> {
    let quota = Quota::new("1/day".parse().unwrap(), 1_000_000).unwrap();
    let charges = [Charge::new("key", &quota, Cost::ONE)];
    let decisions = store.apply(Operation::Spend, &charges, Timestamp::EPOCH).await?;
    Ok(decisions[0])
}

/// Returns how many units were spent in all.
async fn spent(server: &RedisServer) -> u32 {
    let store = RedisStore::builder(server.url()).timeout(PATIENT).connect().await.unwrap();
    1_000_000 - spend(&store).await.unwrap().remaining() - 1
}

/// Spends, and requires that no call takes longer than its deadline.
async fn spend_in_time(store: &RedisStore) -> Result<Decision, StoreError> {
    let start = Instant::now();
    let spent = spend(store).await;
    assert!(start.elapsed() < TIMEOUT + SLACK, "{:?}", start.elapsed());
    spent
}

/// Waits for something that the store does by itself.
async fn wait_for(store: &RedisStore, is_so: impl Fn(&RedisStatus) -> bool) {
    let start = Instant::now();
    while !is_so(&store.status()) {
        assert!(start.elapsed() < PATIENT, "{:?}", store.status());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn behind_proxy(server: &RedisServer, timeout: Duration) -> (FaultProxy, RedisStore) {
    let proxy = FaultProxy::start(server.address()).unwrap();
    let store = RedisStore::builder(proxy.url()).timeout(timeout).connect().await.unwrap();
    (proxy, store)
}

#[tokio::test]
async fn g10_a_black_holed_connection_is_replaced_and_the_next_one_serves() {
    let server = RedisServer::start().unwrap();
    let (proxy, store) = behind_proxy(&server, TIMEOUT).await;
    assert!(spend(&store).await.unwrap().is_allow());
    proxy.set_both(Fault::BlackHole);
    let start = Instant::now();
    while store.status().connections_replaced == 0 {
        assert!(spend_in_time(&store).await.is_err());
        assert!(start.elapsed() < 10 * TIMEOUT + SLACK, "{:?}", store.status());
    }
    assert_eq!(store.status().timeouts, 5);
    proxy.set_both(Fault::None);
    wait_for(&store, |status| status.connections == 1).await;
    assert!(spend(&store).await.unwrap().is_allow());
    assert_eq!(store.status().reconnects, 1);
    // What was lost on the way was not executed, and nothing was sent twice.
    assert_eq!(spent(&server).await, 2);
}

#[tokio::test]
async fn a_connection_whose_answers_are_lost_is_replaced_and_nothing_is_spent_twice() {
    let server = RedisServer::start().unwrap();
    let (proxy, store) = behind_proxy(&server, TIMEOUT).await;
    proxy.set(Direction::ToClient, Fault::BlackHole);
    for _ in 0..5 {
        assert!(spend_in_time(&store).await.unwrap_err().is_timeout());
    }
    assert_eq!(store.status().connections_replaced, 1);
    proxy.set_both(Fault::None);
    wait_for(&store, |status| status.connections == 1).await;
    // Each of the five was executed once, as each timeout said that it might be.
    assert_eq!(spent(&server).await, 5);
    assert_eq!(store.status().retries, 0);
}

#[tokio::test]
async fn answers_that_are_late_do_not_replace_a_connection() {
    let server = RedisServer::start().unwrap();
    let (proxy, store) = behind_proxy(&server, TIMEOUT).await;
    proxy.set(Direction::ToClient, Fault::Delay(TIMEOUT + TIMEOUT / 2));
    let start = Instant::now();
    while start.elapsed() < 8 * TIMEOUT {
        assert!(spend_in_time(&store).await.unwrap_err().is_timeout());
    }
    let status = store.status();
    assert_eq!((status.connections_replaced, status.reconnects, status.connections), (0, 0, 1));
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn a_connection_that_is_reset_is_replaced_before_the_next_call() {
    let server = RedisServer::start().unwrap();
    let (proxy, store) = behind_proxy(&server, PATIENT).await;
    for reconnects in 1..=3 {
        proxy.reset();
        wait_for(&store, |status| status.reconnects == reconnects && status.connections == 1).await;
        assert!(spend(&store).await.unwrap().is_allow());
    }
    assert_eq!(spent(&server).await, 3);
}

#[tokio::test]
async fn a_half_closed_connection_is_replaced_whichever_side_closed() {
    let server = RedisServer::start().unwrap();
    let (proxy, store) = behind_proxy(&server, PATIENT).await;
    for (reconnects, direction) in [(1, Direction::ToClient), (2, Direction::ToServer)] {
        proxy.half_close(direction);
        wait_for(&store, |status| status.reconnects == reconnects && status.connections == 1).await;
        assert!(spend(&store).await.unwrap().is_allow());
    }
}

#[tokio::test]
async fn g10_while_there_is_no_connection_calls_fail_at_once_and_none_connects() {
    let server = RedisServer::start().unwrap();
    let (proxy, store) = behind_proxy(&server, PATIENT).await;
    proxy.refuse(true);
    proxy.reset();
    wait_for(&store, |status| status.connections == 0).await;
    // The first may wait for the attempt that is under way.
    assert!(spend_in_time(&store).await.unwrap_err().is_unavailable());
    let (start, before) = (Instant::now(), proxy.accepted());
    for _ in 0..1_000 {
        assert!(spend(&store).await.unwrap_err().is_unavailable());
    }
    assert!(start.elapsed() < 2 * SLACK, "{:?}", start.elapsed());
    assert!(proxy.accepted() - before < 20, "{}", proxy.accepted());
    proxy.refuse(false);
    let start = Instant::now();
    wait_for(&store, |status| status.connections == 1).await;
    assert!(start.elapsed() < Duration::from_secs(1) + SLACK, "{:?}", start.elapsed());
    assert!(spend(&store).await.unwrap().is_allow());
}

#[tokio::test]
async fn a_server_that_takes_connections_and_says_nothing_delays_no_call_for_long() {
    let server = RedisServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    proxy.set_both(Fault::BlackHole);
    let store = RedisStore::builder(proxy.url()).timeout(TIMEOUT).connect_lazily().unwrap();
    let start = Instant::now();
    for _ in 0..1_000 {
        assert!(spend_in_time(&store).await.unwrap_err().is_unavailable());
    }
    // Only those waited that came in the first deadline.
    assert!(start.elapsed() < TIMEOUT + 2 * SLACK, "{:?}", start.elapsed());
    proxy.set_both(Fault::None);
    proxy.reset();
    wait_for(&store, |status| status.connections == 1).await;
    assert!(spend(&store).await.unwrap().is_allow());
}

#[tokio::test]
async fn a_store_made_while_redis_is_missing_connects_by_itself() {
    let mut server = RedisServer::start().unwrap();
    server.kill().unwrap();
    let store = RedisStore::builder(server.url()).timeout(TIMEOUT).connect_lazily().unwrap();
    assert!(spend_in_time(&store).await.unwrap_err().is_unavailable());
    assert_eq!(store.status().last_answer, None);
    server.restart().unwrap();
    let start = Instant::now();
    wait_for(&store, |status| status.connections == 1).await;
    assert!(start.elapsed() < Duration::from_secs(1) + SLACK, "{:?}", start.elapsed());
    assert!(spend(&store).await.unwrap().is_allow());
    assert!(store.status().last_answer.unwrap() < PATIENT);
}

#[tokio::test]
async fn a_ping_does_not_wait_for_the_pause_between_attempts() {
    let mut server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).timeout(PATIENT).connect().await.unwrap();
    server.kill().unwrap();
    // Many attempts make the pauses long.
    for _ in 0..20 {
        assert!(store.ping().await.unwrap_err().is_unavailable());
    }
    server.restart().unwrap();
    store.ping().await.unwrap();
    assert_eq!(store.status().connections, 1);
}

#[tokio::test]
async fn calls_take_turns_on_several_connections() {
    let server = RedisServer::start().unwrap();
    let clients = || {
        let list = server.command(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap();
        let of_the_store = |line: &&str| line.contains("cmd=evalsha");
        list.text().unwrap().lines().filter(of_the_store).count()
    };
    for (asked, got) in [(1, 1), (3, 3), (4, 4), (9, 4)] {
        let builder = RedisStore::builder(server.url()).connections(asked).timeout(PATIENT);
        let store = builder.connect().await.unwrap();
        wait_for(&store, |status| status.connections == got).await;
        for _ in 0..8 {
            assert!(spend(&store).await.unwrap().is_allow());
        }
        assert_eq!(clients(), got);
        drop(store);
        let start = Instant::now();
        while clients() > 0 {
            assert!(start.elapsed() < PATIENT);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn more_calls_than_may_be_under_way_fail_at_once() {
    let server = RedisServer::start().unwrap();
    let builder = RedisStore::builder(server.url()).in_flight_max(8).timeout(PATIENT);
    let store = Arc::new(builder.connect().await.unwrap());
    server.pause().unwrap();
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { spend(&store).await })
        })
        .collect();
    wait_for(&store, |status| status.in_flight == 8).await;
    let start = Instant::now();
    let error = spend(&store).await.unwrap_err();
    assert!(start.elapsed() < SLACK);
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(
        error.to_string(),
        format!(
            "8 calls to redis at 127.0.0.1:{} are under way, which is the most there may be: see \
             whether it is overloaded, or raise in_flight_max",
            server.port()
        )
    );
    server.resume().unwrap();
    for call in calls {
        assert!(call.await.unwrap().unwrap().is_allow());
    }
    assert_eq!(store.status().in_flight, 0);
    assert!(spend(&store).await.unwrap().is_allow());
}

/// Has tasks spend until told to end, and returns how many units were allowed and what failed.
struct Load {
    end: Arc<std::sync::atomic::AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<(u32, Vec<StoreError>)>>,
}

impl Load {
    fn on(store: &Arc<RedisStore>) -> Self {
        let end = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let task = || {
            let (store, end) = (Arc::clone(store), Arc::clone(&end));
            tokio::spawn(async move {
                let (mut allowed, mut errors) = (0, Vec::new());
                while !end.load(std::sync::atomic::Ordering::Relaxed) {
                    match spend(&store).await {
                        Ok(_) => allowed += 1,
                        Err(error) => {
                            errors.push(error);
                            // While there is no connection they fail at once.
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                    }
                }
                (allowed, errors)
            })
        };
        let tasks = (0..16).map(|_| task()).collect();
        Self { end, tasks }
    }

    async fn end(self) -> (u32, Vec<StoreError>) {
        self.end.store(true, std::sync::atomic::Ordering::Relaxed);
        let (mut allowed, mut errors) = (0, Vec::new());
        for task in self.tasks {
            let (more, failed) = task.await.unwrap();
            allowed += more;
            errors.extend(failed);
        }
        (allowed, errors)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed_under_load_fail_nothing() {
    let server = RedisServer::start().unwrap();
    let builder = RedisStore::builder(server.url()).connections(2).timeout(PATIENT);
    let store = Arc::new(builder.connect().await.unwrap());
    let load = Load::on(&store);
    for _ in 0..20 {
        let _ = server.command(&["SCRIPT", "FLUSH"]).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (allowed, errors) = load.end().await;
    assert!(errors.is_empty(), "{errors:?}");
    assert!(allowed > 100);
    assert_eq!(spent(&server).await, allowed);
    assert!(store.status().script_reloads >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_killed_under_load_come_back_and_spend_nothing_twice() {
    let server = RedisServer::start().unwrap();
    let builder = RedisStore::builder(server.url()).connections(2).timeout(PATIENT);
    let store = Arc::new(builder.connect().await.unwrap());
    let load = Load::on(&store);
    for _ in 0..10 {
        let _ = server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    wait_for(&store, |status| status.connections == 2).await;
    let (allowed, errors) = load.end().await;
    assert!(errors.iter().all(StoreError::is_unavailable), "{errors:?}");
    // Of each that failed it is not known whether it was executed; of the others it is.
    let failed = u32::try_from(errors.len()).unwrap();
    let spent = spent(&server).await;
    assert!((allowed..=allowed + failed).contains(&spent), "{allowed} {failed} {spent}");
    assert!(allowed > failed && store.status().reconnects >= 10);
}

#[tokio::test]
async fn a_replica_is_not_connected_to_anew_by_every_call() {
    let server = RedisServer::start().unwrap();
    let (proxy, store) = behind_proxy(&server, PATIENT).await;
    let _ = server.command(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    for _ in 0..100 {
        let error = spend(&store).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    }
    assert_eq!(proxy.accepted(), 1);
    // A name that leads to another server by now is found out about within a second.
    let start = Instant::now();
    while proxy.accepted() == 1 {
        assert!(spend(&store).await.is_err());
        assert!(start.elapsed() < Duration::from_secs(1) + SLACK);
    }
    let _ = server.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    assert!(spend(&store).await.unwrap().is_allow());
}

#[tokio::test]
async fn a_unix_socket_serves_as_well() {
    let server = RedisServer::builder().unix_socket().start().unwrap();
    let url = format!("redis+unix://{}", server.socket().unwrap().display());
    let builder: RedisStoreBuilder = RedisStore::builder(url).database(3);
    let store = builder.timeout(PATIENT).connect().await.unwrap();
    assert!(spend(&store).await.unwrap().is_allow());
    assert!(format!("{store:?}").contains("redis.sock"));
    // The database that was asked for holds the bucket, and the first one nothing.
    assert_eq!(server.command(&["DBSIZE"]).unwrap().integer(), Some(0));
    let keyspace = server.command(&["INFO", "keyspace"]).unwrap();
    assert!(keyspace.text().unwrap().contains("db3:keys=1"), "{keyspace:?}");
}

#[tokio::test]
async fn an_acl_user_with_a_wrong_password_is_refused() {
    let server = RedisServer::start().unwrap();
    let _ = server.command(&["ACL", "SETUSER", "shop", "on", ">right", "~*", "+@all"]).unwrap();
    let builder = || RedisStore::builder(server.url()).user("shop").timeout(PATIENT);
    let store = builder().password("right").connect().await.unwrap();
    assert!(spend(&store).await.unwrap().is_allow());
    let error = builder().password("wrong-one").connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert_eq!(
        error.to_string(),
        format!(
            "redis at 127.0.0.1:{} refused the call (wrong password): check the user and the password",
            server.port()
        )
    );
}

#[tokio::test]
async fn a_server_that_wants_a_password_says_so_and_is_not_asked_again_and_again() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url()).timeout(Duration::from_millis(500));
    let _ = server.command(&["CONFIG", "SET", "requirepass", "right"]).unwrap();
    let error = store.clone().connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("NOAUTH"), "{error}");
    let lazy = store.connect_lazily().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(lazy.status().reconnects < 10, "{:?}", lazy.status());
}
