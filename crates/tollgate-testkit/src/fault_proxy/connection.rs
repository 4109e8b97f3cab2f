//! One connection through the proxy, with four threads: each direction reads and writes apart, so that
//! a delay does not bound the rate.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::{Direction, Fault, Shared};

/// How many bytes are passed on in one piece at most.
const PIECE_LEN: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// Set before the sockets are woken to be closed by a reset.
    is_reset: AtomicBool,
    /// How many directions are at their end.
    ended: AtomicU8,
}

/// Bytes, or the end of the stream, and when they are due.
type Piece = (Instant, Option<Vec<u8>>);

impl Connection {
    pub(super) fn new(client: TcpStream, server: TcpStream) -> Self {
        // Without it the proxy would add delays of its own. It cannot fail on an open socket.
        let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
        Self { client, server, is_reset: AtomicBool::new(false), ended: AtomicU8::new(0) }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst) == 2
    }

    pub(super) fn reset(&self) {
        self.is_reset.store(true, Ordering::SeqCst);
        for socket in [&self.client, &self.server] {
            // With this the last close of the socket sends a reset. Those that ended have none.
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
            // Wakes the thread that reads and tells the other side nothing.
            let _ = socket.shutdown(Shutdown::Read);
        }
    }

    pub(super) fn half_close(&self, direction: Direction) {
        // It may have ended before.
        let _ = self.ends(direction).1.shutdown(Shutdown::Write);
    }

    /// Returns where bytes of a direction come from and where they go.
    fn ends(&self, direction: Direction) -> (&TcpStream, &TcpStream) {
        match direction {
            Direction::ToServer => (&self.client, &self.server),
            Direction::ToClient => (&self.server, &self.client),
        }
    }
}

/// Closes a socket that nobody else holds by a reset.
pub(super) fn close_by_reset(socket: &TcpStream) {
    // If it cannot be set the socket is closed in the usual way.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

/// Passes on what goes one way, in threads that end with the connection.
pub(super) fn pump(shared: Arc<Shared>, connection: Arc<Connection>, direction: Direction) {
    let (sender, receiver) = mpsc::channel();
    let writing = Arc::clone(&connection);
    thread::spawn(move || write(&writing, direction, &receiver));
    thread::spawn(move || read(&shared, &connection, direction, &sender));
}

fn read(shared: &Shared, connection: &Connection, direction: Direction, sender: &Sender<Piece>) {
    let (mut from, _) = connection.ends(direction);
    let mut buffer = vec![0; PIECE_LEN];
    loop {
        let read = from.read(&mut buffer).unwrap_or(0);
        if connection.is_reset.load(Ordering::SeqCst) {
            return;
        }
        let piece = (read > 0).then(|| buffer[..read].to_vec());
        let sent = match shared.fault(direction) {
            Fault::None => sender.send((Instant::now(), piece)),
            Fault::Delay(delay) => sender.send((Instant::now() + delay, piece)),
            Fault::BlackHole => Ok(()),
        };
        if read == 0 || sent.is_err() {
            return;
        }
    }
}

fn write(connection: &Connection, direction: Direction, receiver: &Receiver<Piece>) {
    let (_, mut to) = connection.ends(direction);
    while let Ok((due, piece)) = receiver.recv() {
        wait_until(due);
        if connection.is_reset.load(Ordering::SeqCst) {
            break;
        }
        match piece {
            // What cannot be written is lost, as for a side that is closed.
            Some(bytes) => drop(to.write_all(&bytes)),
            None => drop(to.shutdown(Shutdown::Write)),
        }
    }
    connection.ended.fetch_add(1, Ordering::SeqCst);
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own that has nothing else to do")]
fn wait_until(due: Instant) {
    thread::sleep(due.saturating_duration_since(Instant::now()));
}
