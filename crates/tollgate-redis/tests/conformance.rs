//! The worked timelines on a real server, to the microsecond (G8).
#![cfg(unix)]

use std::time::Duration;

use tollgate_redis::{RedisStore, TimeSource};
use tollgate_testkit::{RedisServer, conformance, timeline};

#[tokio::test]
async fn g8_every_worked_timeline_is_reproduced() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::builder(server.url())
        .time_source(TimeSource::Client)
        .timeout(Duration::from_secs(10))
        .connect()
        .await
        .unwrap();
    for file in timeline::ALL {
        for timeline in &timeline::parse(file).unwrap() {
            conformance::replay(&store, timeline)
                .await
                .unwrap_or_else(|failure| panic!("{}: {failure}", timeline.name()));
        }
    }
    assert_eq!(server.command(&["DBSIZE"]).unwrap().integer(), Some(0));
}
