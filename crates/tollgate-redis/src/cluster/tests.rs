use super::*;

fn cluster() -> Arc<Cluster> {
    let store = crate::RedisStore::builder("redis+cluster://user:secret@a:1").connect_lazily();
    match &store.unwrap().inner.transport.target {
        crate::target::Target::Cluster(cluster) => Arc::clone(cluster),
        other => panic!("{other:?}"),
    }
}

fn range(first: u16, last: u16, host: &str, port: u16) -> Range {
    Range { slots: (first, last), primary: (host.to_owned(), port) }
}

fn slot(number: u16) -> HashSlot {
    HashSlot::new(number).unwrap()
}

fn owner(cluster: &Cluster, number: u16) -> Option<String> {
    cluster.known_owner(slot(number)).map(|server| server.name())
}

#[test]
fn the_slots_are_read_from_what_a_node_says() {
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let node = |host, port| Value::Array(vec![host, Value::Int(port), text("id")]);
    let slots = |first, last, nodes: Vec<Value>| {
        Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
    };
    let reply = Value::Array(vec![
        slots(0, 9, vec![node(text("10.0.0.1"), 7000), node(text("10.0.0.2"), 7001)]),
        slots(10, 10, vec![node(text(""), 7002)]),
        slots(11, 11, vec![node(Value::Nil, 7003)]),
        slots(12, 16_383, vec![node(text("?"), 7004)]),
    ]);
    assert_eq!(
        parse(&reply, "asked").unwrap(),
        [
            range(0, 9, "10.0.0.1", 7000),
            range(10, 10, "asked", 7002),
            range(11, 11, "asked", 7003),
            range(12, 16_383, "asked", 7004),
        ]
    );
    for wrong in [
        Value::Nil,
        Value::Array(vec![Value::Int(1)]),
        Value::Array(vec![slots(0, 16_384, vec![node(text("a"), 1)])]),
        Value::Array(vec![slots(9, 8, vec![node(text("a"), 1)])]),
        Value::Array(vec![slots(0, 1, vec![node(text("a"), 65_536)])]),
        Value::Array(vec![slots(0, 1, vec![])]),
        Value::Array(vec![slots(-1, 1, vec![node(text("a"), 1)])]),
    ] {
        assert_eq!(parse(&wrong, "asked"), None, "{wrong:?}");
    }
}

#[test]
fn nodes_that_stay_keep_their_connections() {
    let cluster = cluster();
    assert_eq!(owner(&cluster, 0), None);
    cluster.install(&[range(0, 99, "a", 1), range(100, 16_383, "b", 2)]);
    assert_eq!(owner(&cluster, 99).as_deref(), Some("a:1"));
    assert_eq!(owner(&cluster, 100).as_deref(), Some("b:2"));
    assert_eq!(cluster.slot_of_each(), [slot(0), slot(100)]);

    let before = cluster.known_owner(slot(100)).unwrap();
    cluster.install(&[range(0, 49, "b", 2), range(50, 98, "c", 3)]);
    assert!(Arc::ptr_eq(&before, &cluster.known_owner(slot(0)).unwrap()));
    assert_eq!(owner(&cluster, 98).as_deref(), Some("c:3"));
    assert_eq!(owner(&cluster, 99), None);
}

#[tokio::test]
async fn a_slot_that_moved_is_known_at_once() {
    let cluster = cluster();
    cluster.install(&[range(0, 16_383, "127.0.0.1", 1)]);
    assert_eq!(cluster.moved(slot(7), "127.0.0.1", 2).name(), "127.0.0.1:2");
    assert_eq!(owner(&cluster, 7).as_deref(), Some("127.0.0.1:2"));
    assert_eq!(owner(&cluster, 8).as_deref(), Some("127.0.0.1:1"));
    assert_eq!(cluster.moved(slot(8), "127.0.0.1", 2).name(), "127.0.0.1:2");
    assert_eq!(cluster.map.read().nodes.len(), 2);
}
