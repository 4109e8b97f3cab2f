//! What the proxy does to a connection, as a client and a server see it.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tollgate_testkit::fault_proxy::{Direction, Fault, FaultProxy};

const DELAY: Duration = Duration::from_millis(50);

/// Longer than any answer takes that is under way.
const SILENCE: Duration = Duration::from_millis(100);

/// A proxy, and both ends of a connection through it.
fn through() -> (FaultProxy, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = FaultProxy::start(listener.local_addr().unwrap()).unwrap();
    let client = TcpStream::connect(proxy.address()).unwrap();
    let server = listener.accept().unwrap().0;
    for end in [&client, &server] {
        end.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    (proxy, client, server)
}

fn passes(mut from: &TcpStream, mut to: &TcpStream) -> Duration {
    let start = Instant::now();
    from.write_all(b"word").unwrap();
    let mut word = [0; 4];
    to.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"word");
    start.elapsed()
}

fn is_silent(mut end: &TcpStream) -> bool {
    end.set_read_timeout(Some(SILENCE)).unwrap();
    let read = end.read(&mut [0; 1]);
    matches!(read, Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
}

#[test]
fn without_a_fault_both_directions_pass() {
    let (proxy, client, server) = through();
    let _ = passes(&client, &server);
    let _ = passes(&server, &client);
    assert_eq!(proxy.accepted(), 1);
    drop(client);
    assert_eq!((&server).read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_delay_holds_for_its_direction_and_does_not_bound_the_rate() {
    let (proxy, client, server) = through();
    proxy.set(Direction::ToServer, Fault::Delay(DELAY));
    assert!(passes(&client, &server) >= DELAY);
    assert!(passes(&server, &client) < DELAY);
    let start = Instant::now();
    for _ in 0..100 {
        (&client).write_all(b"word").unwrap();
    }
    (&server).read_exact(&mut [0; 400]).unwrap();
    let took = start.elapsed();
    assert!(took >= DELAY && took < 20 * DELAY, "{took:?}");
}

#[test]
fn a_black_hole_loses_bytes_and_ends_and_keeps_the_connection() {
    let (proxy, client, server) = through();
    proxy.set(Direction::ToServer, Fault::BlackHole);
    (&client).write_all(b"lost").unwrap();
    assert!(is_silent(&server));
    let _ = passes(&server, &client);
    proxy.set_both(Fault::None);
    let _ = passes(&client, &server);
    proxy.set_both(Fault::BlackHole);
    drop(client);
    assert!(is_silent(&server));
}

#[test]
fn a_reset_breaks_both_sides() {
    let (proxy, client, server) = through();
    let _ = passes(&client, &server);
    proxy.reset();
    for end in [&client, &server] {
        let error = { end }.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_half_closed_connection_still_passes_the_other_way() {
    let (proxy, client, server) = through();
    proxy.half_close(Direction::ToClient);
    assert_eq!((&client).read(&mut [0; 1]).unwrap(), 0);
    let _ = passes(&client, &server);
}

#[test]
fn a_proxy_that_refuses_resets_new_connections_only() {
    let (proxy, client, server) = through();
    proxy.refuse(true);
    let mut refused = TcpStream::connect(proxy.address()).unwrap();
    let error = refused.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let _ = passes(&client, &server);
    assert_eq!(proxy.accepted(), 2);
}
