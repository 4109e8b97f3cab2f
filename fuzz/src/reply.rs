//! What a Redis server answers, which may be anything.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tollgate_core::{
    Algorithm, Charge, Cost, Operation, Quota, QuotaError, Rate, Store, Ticket, Timestamp,
};
use tollgate_redis::RedisStore;

const TIMEOUT: Duration = Duration::from_millis(500);

thread_local! {
    static SCENE: Scene = Scene::set().unwrap_or_else(|error| panic!("no scene: {error}"));
}

/// A store, and a server that answers every script with the same bytes and hangs up.
struct Scene {
    runtime: Runtime,
    tasks: LocalSet,
    store: RedisStore,
    reply: Rc<RefCell<Vec<u8>>>,
    quotas: Vec<Quota>,
    _dir: TempDir,
}

/// Checks that any bytes in answer to a script become decisions that can be, or an error, in time. The
/// first byte selects what was asked.
pub fn check(data: &[u8]) {
    let Some((asked, reply)) = data.split_first() else { return };
    SCENE.with(|scene| scene.play(usize::from(*asked), reply));
}

impl Scene {
    fn set() -> Result<Self, Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("redis.sock");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tasks = LocalSet::new();
        let reply = Rc::new(RefCell::new(Vec::new()));
        let store = {
            let _inside = runtime.enter();
            let listener = UnixListener::bind(&socket)?;
            let reply = Rc::clone(&reply);
            tasks.spawn_local(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::task::spawn_local(serve(stream, Rc::clone(&reply)));
                }
            });
            let url = format!("redis+unix://{}", socket.display());
            RedisStore::builder(url).timeout(TIMEOUT).connect_lazily()?
        };
        Ok(Self { runtime, tasks, store, reply, quotas: quotas()?, _dir: dir })
    }

    fn play(&self, asked: usize, reply: &[u8]) {
        self.reply.replace(reply.to_vec());
        let operations = [
            Operation::Spend,
            Operation::Look,
            Operation::Refund,
            Operation::Renew,
            Operation::Release,
            Operation::Reserve { ttl: Duration::from_secs(1) },
            Operation::Settle,
        ];
        let operation = operations[asked % operations.len()];
        // One of the algorithms, or all of them in one request.
        let quotas = match asked / operations.len() % (self.quotas.len() + 1) {
            0 => self.quotas.as_slice(),
            one => &self.quotas[one - 1..one],
        };
        let charges: Vec<_> = quotas
            .iter()
            .map(|quota| {
                Charge::new(quota.algorithm().as_str(), quota, Cost::ONE)
                    .with_ticket(Ticket::new(7))
            })
            .collect();
        let begun = Instant::now();
        let answer = self
            .tasks
            .block_on(&self.runtime, self.store.apply(operation, &charges, Timestamp::EPOCH));
        let elapsed = begun.elapsed();
        assert!(elapsed < 4 * TIMEOUT, "{operation:?} took {elapsed:?}");
        match answer {
            Ok(decisions) => {
                assert_eq!(decisions.len(), charges.len());
                for (decision, charge) in decisions.iter().zip(&charges) {
                    assert_eq!(decision.limit(), charge.quota.burst());
                    assert!(decision.remaining() <= decision.limit(), "{decision:?}");
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn quotas() -> Result<Vec<Quota>, QuotaError> {
    let rate = Rate::per_second(10)?;
    Ok(vec![
        Quota::new(rate, 20)?,
        Quota::leaky_bucket(rate, 5)?,
        Quota::fixed_window(rate)?,
        Quota::sliding_window(rate, Algorithm::CELLS_DEFAULT)?,
        Quota::sliding_log(rate)?,
        Quota::concurrency(3, Algorithm::LEASE_TTL_DEFAULT)?,
    ])
}

/// Answers a connection: with OK what sets it up, and with the reply, once, what runs a script.
async fn serve(stream: UnixStream, reply: Rc<RefCell<Vec<u8>>>) {
    let mut stream = BufReader::new(stream);
    while let Some(name) = command(&mut stream).await {
        let is_script = name.eq_ignore_ascii_case("evalsha") || name.eq_ignore_ascii_case("eval");
        let answer = if is_script { reply.borrow().clone() } else { b"+OK\r\n".to_vec() };
        if stream.get_mut().write_all(&answer).await.is_err() || is_script {
            return;
        }
    }
}

/// Reads a command and returns its name.
async fn command(stream: &mut BufReader<UnixStream>) -> Option<String> {
    let words = length(stream, '*').await?;
    let mut name = None;
    for _ in 0..words {
        let bytes = length(stream, '$').await?;
        let mut word = vec![0; bytes + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(bytes);
        name = name.or_else(|| String::from_utf8(word).ok());
    }
    name
}

async fn length(stream: &mut BufReader<UnixStream>, kind: char) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.trim_end().strip_prefix(kind)?.parse().ok()
}
