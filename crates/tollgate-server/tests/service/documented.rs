//! The examples of `docs/http-api.md`, replayed.

use tollgate::ManualClock;

use crate::support::{Service, request};

const DOC: &str = include_str!("../../../../docs/http-api.md");

/// Returns the blocks of that language, in order.
fn blocks(language: &str) -> Vec<&'static str> {
    let parts = DOC.split("\n```").skip(1).step_by(2);
    parts.filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n')).collect()
}

#[tokio::test]
async fn every_documented_example_is_what_the_service_answers() {
    let rules = blocks("yaml");
    let service = Service::start_with_clock(rules[0], &ManualClock::new()).await;
    let exchanges = blocks("http");
    assert_eq!(exchanges.len(), 30, "requests and answers");
    // What the page writes for an id that is drawn at random, and what was drawn.
    let mut ids = Vec::new();
    for exchange in exchanges.chunks(2) {
        let (head, body) = exchange[0].split_once("\n\n").unwrap();
        let mut lines = head.lines();
        let (method, path) = lines.next().and_then(|line| line.split_once(' ')).unwrap();
        let headers: Vec<_> = lines.map(|line| line.split_once(": ").unwrap()).collect();
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let body = ids.iter().fold(body.to_owned(), |body, (written, drawn): &(String, String)| {
            body.replace(written, drawn)
        });
        let reply = request(service.http, method, path, &headers, body.as_bytes()).await;

        let (head, body) = exchange[1].split_once("\n\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').next()).unwrap();
        let headers: Vec<_> = lines.map(|line| line.split_once(": ").unwrap()).collect();
        assert_eq!(reply.status.to_string(), status, "{exchange:?}");
        assert_eq!(reply.own_headers(), headers, "{exchange:?}");
        let mut body: serde_json::Value = serde_json::from_str(body).unwrap();
        for name in ["lease_id", "reservation_id"] {
            if let Some(written) = body.get_mut(name) {
                let drawn = reply.json()[name].clone();
                ids.push((
                    written.as_str().unwrap().to_owned(),
                    drawn.as_str().unwrap().to_owned(),
                ));
                *written = drawn;
            }
        }
        assert_eq!(reply.json(), body, "{exchange:?}");
    }
}
