//! TLS and mTLS to a real server, with good certificates and bad ones.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::time::Duration;

use tollgate_core::{Charge, Cost, Operation, Quota, Store, StoreError, Timestamp};
use tollgate_redis::{RedisStore, RedisStoreBuilder, Tls};
use tollgate_testkit::certificates::{Certificates, ClientCertificate};
use tollgate_testkit::{RedisCluster, RedisServer};

const PATIENT: Duration = Duration::from_secs(10);

fn server(certificates: &Certificates, client: ClientCertificate) -> RedisServer {
    RedisServer::builder().tls(certificates, client).start().unwrap()
}

fn builder(server: &RedisServer, host: &str) -> RedisStoreBuilder {
    let url = format!("rediss://{host}:{}", server.tls_port().unwrap());
    RedisStore::builder(url).timeout(PATIENT)
}

fn believing(certificates: &Certificates) -> Tls {
    Tls::new().ca(certificates.ca())
}

async fn remaining_after_spend(store: &RedisStore) -> Result<u32, StoreError> {
    let quota = Quota::new("1/day".parse().unwrap(), 10).unwrap();
    let charges = [Charge::new("key", &quota, Cost::ONE)];
    let decisions = store.apply(Operation::Spend, &charges, Timestamp::EPOCH).await?;
    Ok(decisions[0].remaining())
}

async fn refused(builder: RedisStoreBuilder) -> String {
    let error = builder.connect().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let text = error.to_string();
    assert!(
        text.ends_with("check the CA, the client's certificate and the host that the URL names"),
        "{text}"
    );
    text
}

#[tokio::test]
async fn a_server_of_a_ca_that_was_given_is_believed_by_name_and_by_address() {
    let certificates = Certificates::generate().unwrap();
    let server = server(&certificates, ClientCertificate::NotAsked);
    for (host, left) in [("localhost", 9), ("127.0.0.1", 8)] {
        let store = builder(&server, host).tls(believing(&certificates)).connect().await.unwrap();
        assert_eq!(remaining_after_spend(&store).await.unwrap(), left);
    }
}

#[tokio::test]
async fn a_server_of_another_ca_or_another_name_is_not_believed() {
    let certificates = Certificates::generate().unwrap();
    let server = server(&certificates, ClientCertificate::NotAsked);
    let other = Certificates::generate().unwrap();
    let text = refused(builder(&server, "localhost").tls(believing(&other))).await;
    assert!(text.contains("invalid peer certificate"), "{text}");
    // 127.0.0.2 leads to the server as well, which its certificate does not name.
    let server = RedisServer::builder()
        .tls(&certificates, ClientCertificate::NotAsked)
        .arg("--bind")
        .arg("127.0.0.1 127.0.0.2")
        .start()
        .unwrap();
    let text = refused(builder(&server, "127.0.0.2").tls(believing(&certificates))).await;
    assert!(text.contains("not valid for name"), "{text}");
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_lets_in_who_has_one_of_its_ca() {
    let certificates = Certificates::generate().unwrap();
    let server = server(&certificates, ClientCertificate::Needed);
    let client = certificates.client();
    let with = believing(&certificates).identity(client.certificate(), client.private_key());
    let shown = format!("{with:?}");
    assert_eq!(shown, "Tls { ca: true, identity: true }");
    let store = builder(&server, "localhost").tls(with).connect().await.unwrap();
    assert_eq!(remaining_after_spend(&store).await.unwrap(), 9);

    let _ = refused(builder(&server, "localhost").tls(believing(&certificates))).await;
    let other = Certificates::generate().unwrap();
    let stranger = other.client();
    let with = believing(&certificates).identity(stranger.certificate(), stranger.private_key());
    let _ = refused(builder(&server, "localhost").tls(with)).await;
}

#[tokio::test]
async fn the_wrong_port_says_so() {
    let certificates = Certificates::generate().unwrap();
    let server = server(&certificates, ClientCertificate::NotAsked);
    let connect = async |scheme, port| {
        let builder = RedisStore::builder(format!("{scheme}://localhost:{port}")).timeout(PATIENT);
        let builder = match scheme {
            "rediss" => builder.tls(believing(&certificates)),
            _ => builder,
        };
        builder.connect().await.unwrap_err().to_string()
    };
    let plain = connect("rediss", server.port()).await;
    assert!(
        plain.ends_with(
            "(no answer in TLS): see whether it speaks TLS on that port, or write redis://"
        ),
        "{plain}"
    );
    let tls = connect("redis", server.tls_port().unwrap()).await;
    assert!(tls.starts_with("cannot connect to redis at localhost:"), "{tls}");
}

#[tokio::test]
async fn certificates_that_cannot_be_read_are_invalid_before_anything_connects() {
    let certificates = Certificates::generate().unwrap();
    let client = certificates.client();
    let (certificate, key) = (client.certificate(), client.private_key());
    for (tls, what) in [
        (Tls::new().ca("no PEM"), "CA certificate"),
        (believing(&certificates).identity("no PEM", key), "client certificate"),
        (believing(&certificates).identity(certificate, "no PEM"), "private key"),
        (believing(&certificates).identity(certificates.ca(), key), "client certificate"),
    ] {
        let error = RedisStore::builder("rediss://host").tls(tls).connect_lazily().unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(what), "{error}");
        assert!(!error.to_string().contains("PRIVATE"), "{error}");
    }
    let error = RedisStore::builder("redis://host").tls(Tls::new()).connect_lazily().unwrap_err();
    assert!(error.to_string().ends_with("write rediss://"), "{error}");
}

#[tokio::test]
async fn the_nodes_of_a_cluster_are_connected_to_with_tls_where_the_cluster_says() {
    let certificates = Certificates::generate().unwrap();
    let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let node = RedisServer::builder()
        .tls(&certificates, ClientCertificate::NotAsked)
        .arg("--tls-cluster")
        .arg("yes")
        .arg("--cluster-port")
        .arg(bus.to_string());
    let cluster = RedisCluster::start_with(1, &node).unwrap();
    let port = cluster.node(0).tls_port().unwrap();
    let store = RedisStore::cluster([format!("rediss://localhost:{port}")]);
    let store = store.tls(believing(&certificates)).timeout(PATIENT).connect().await.unwrap();
    assert_eq!(remaining_after_spend(&store).await.unwrap(), 9);
    // The seed was asked by its name; the node is at the address that it announces.
    assert_eq!((store.status().servers, store.status().connections), (1, 1));
}

#[tokio::test]
async fn sentinels_and_the_primary_are_connected_to_with_tls() {
    let certificates = Certificates::generate().unwrap();
    let redis = server(&certificates, ClientCertificate::NotAsked);
    let monitored = redis.tls_port().unwrap();
    let sentinel = RedisServer::builder()
        .config(format!("sentinel monitor main 127.0.0.1 {monitored} 1\n"))
        .tls(&certificates, ClientCertificate::NotAsked)
        .arg("--tls-replication")
        .arg("yes")
        .arg("--sentinel")
        .start()
        .unwrap();
    let url = format!("rediss+sentinel://localhost:{}/main", sentinel.tls_port().unwrap());
    let builder = RedisStore::builder(url).tls(believing(&certificates)).timeout(PATIENT);
    let store = builder.connect().await.unwrap();
    assert_eq!(remaining_after_spend(&store).await.unwrap(), 9);
    let clients = redis.command(&["CLIENT", "LIST", "TYPE", "normal"]).unwrap();
    assert!(clients.text().unwrap().contains("cmd=evalsha"), "{clients:?}");
}
