//! How soon answers come under loads that the service carries with ease.
//!
//! The generator has a processor for itself, on which it never sleeps, and all who are asked share the
//! others: what is measured is not how long the generator itself waits for one.

use std::time::Duration;

use tokio::runtime::Builder;
use tollgate_bench::Error;
use tollgate_bench::client::{Client, Latencies, Schedule, Transport};
use tollgate_bench::process::Process;
use tollgate_bench::processors::{Party, Processors};
use tollgate_testkit::RedisServer;

const ROUNDS: usize = 5;

const KEYS: usize = 100_000;

/// What limitador was measured at, with as many connections.
const RATE_PER_SECOND: u64 = 8_000;

const CONNECTIONS: usize = 16;

/// As many as there are users of an endpoint at a time.
const USERS: usize = 64;

/// Long enough to tell how much an endpoint carries.
const WARM_UP: Duration = Duration::from_secs(3);

/// How much later an answer may come at the p99.
const ADDED_MAX: Duration = Duration::from_millis(1);

/// What is told of one round: a name, whether it is of windows of 50 ms, and how many parts of a million
/// are slower.
const PERCENTILES: [(&str, bool, usize); 4] = [
    ("p50", false, 500_000),
    ("p99", false, 10_000),
    ("p99.9", false, 1_000),
    ("p99 of 50 ms", true, 10_000),
];

/// The places of those that have aims.
const P50: usize = 0;
const WINDOW_P99: usize = 3;

/// What is told of one round.
type Told = [Duration; PERCENTILES.len()];

/// Services that are asked in turns, each for so long in a round; tells whether each is as fast as it must be.
pub(crate) fn run(duration: Duration) -> Result<bool, Error> {
    let processors = Processors::new()?;
    processors.give_to(Party::Service)?;
    let redis = RedisServer::builder().unix_socket().start()?;
    let is_fast = of_the_service(&processors, &redis.url(), duration)?;
    println!();
    Ok(added_by_a_check(&processors, &redis, duration)? && is_fast)
}

/// A transport and a store, with what limitador takes of the p50 and the p99 there.
struct Row<'a> {
    what: &'a str,
    words: &'a [&'a str],
    transport: Transport,
    limitador: Option<[Duration; 2]>,
}

fn of_the_service(processors: &Processors, redis: &str, round: Duration) -> Result<bool, Error> {
    let (memory, redis) = (["tollgate"], ["tollgate", redis]);
    let grpc = Transport::Grpc { streams: 100 };
    let micros = |p50, p99| Some([p50, p99].map(Duration::from_micros));
    let rows = [
        ("gRPC, memory", &memory[..], grpc, micros(73, 164)),
        ("gRPC, Redis", &redis, grpc, micros(291, 6_883)),
        ("HTTP, memory", &memory, Transport::Http, None),
        ("HTTP, Redis", &redis, Transport::Http, None),
    ];
    let rows =
        rows.map(|(what, words, transport, limitador)| Row { what, words, transport, limitador });
    println!(
        "| {RATE_PER_SECOND}/s over {CONNECTIONS} connections, {ROUNDS} rounds of {} s | p50 | p99 | p99.9 | \
         p99 of 50 ms | limitador's p50 | p99 |",
        round.as_secs()
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut is_fast = true;
    for row in rows {
        processors.give_to(Party::Service)?;
        let service = Process::start(row.words)?;
        processors.give_to(Party::Generator)?;
        let port = service.ports().of(row.transport);
        let schedule = Schedule {
            transport: row.transport,
            port,
            connections: CONNECTIONS,
            keys: KEYS,
            rate_per_second: RATE_PER_SECOND,
            duration: round,
        };
        let rounds = (0..ROUNDS).map(|_| Ok(told(&schedule.run()?)));
        let told = middle(rounds.collect::<Result<Vec<Told>, Error>>()?);
        let (limitador, is_faster) = match row.limitador {
            Some(limitador) => {
                let [of_p50, of_p99] = limitador.map(micros_text);
                let is_faster = told[P50] < limitador[0] && told[WINDOW_P99] < limitador[1];
                (format!("{of_p50} | {of_p99}"), is_faster)
            }
            None => ("- | -".to_owned(), true),
        };
        let missed = if is_faster { "" } else { " MISSED" };
        let told = told.map(micros_text).join(" | ");
        println!("| {} | {told} | {limitador}{missed} |", row.what);
        is_fast &= is_faster;
    }
    Ok(is_fast)
}

/// An endpoint that checks each request on Redis, reached over TCP and over a unix socket, one that asks Redis for
/// nothing and one that does neither, under half of what the first carries.
fn added_by_a_check(
    processors: &Processors,
    redis: &RedisServer,
    round: Duration,
) -> Result<bool, Error> {
    processors.give_to(Party::Service)?;
    let socket = redis.socket().ok_or("Redis has no unix socket")?;
    let (tcp, unix) = (redis.url(), format!("redis+unix://{}", socket.display()));
    let neither = Process::start(&["endpoint"])?;
    let endpoints = [
        ("a check", Process::start(&["endpoint", &tcp])?),
        ("a check by unix socket", Process::start(&["endpoint", &unix])?),
        ("a round trip", Process::start(&["round-trip", &tcp])?),
    ];
    processors.give_to(Party::Generator)?;
    let most = most_per_second(&endpoints[0].1)?;
    println!(
        "An endpoint carries {most:.0}/s with a check, {:.0}/s by unix socket, {:.0}/s with a round trip, {:.0}/s \
         with neither.\n",
        most_per_second(&endpoints[1].1)?,
        most_per_second(&endpoints[2].1)?,
        most_per_second(&neither)?
    );
    let rate_per_second = (most / 2.0) as u64;
    let ask = |endpoint: &Process| -> Result<Told, Error> {
        let schedule = Schedule {
            transport: Transport::Http,
            port: endpoint.ports().http,
            connections: USERS,
            keys: KEYS,
            rate_per_second,
            duration: round,
        };
        Ok(told(&schedule.run()?))
    };
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let without = ask(&neither)?;
        let mut of_round = [(Told::default(), without); 3];
        for (told_of, (_, endpoint)) in of_round.iter_mut().zip(&endpoints) {
            told_of.0 = ask(endpoint)?;
        }
        rounds.push(of_round);
    }
    println!(
        "| {rate_per_second}/s over {USERS} connections, {ROUNDS} rounds of {} s | {} |",
        round.as_secs(),
        PERCENTILES.map(|(name, ..)| format!("{name} | added (least - most)")).join(" | ")
    );
    println!("| --- {}|", "| --- | --- ".repeat(PERCENTILES.len()));
    let median = |place: usize| {
        let mut without: Vec<_> = rounds.iter().map(|round| round[0].1[place]).collect();
        without.sort_unstable();
        micros_text(without[ROUNDS / 2])
    };
    let of_neither: Vec<_> = (0..PERCENTILES.len()).map(|place| median(place) + " | -").collect();
    println!("| neither | {} |", of_neither.join(" | "));
    let mut is_fast = true;
    for (number, (what, _)) in endpoints.iter().enumerate() {
        let mut cells = Vec::new();
        for place in 0..PERCENTILES.len() {
            let told = rounds.iter().map(|round| (round[number].0[place], round[number].1[place]));
            let mut told: Vec<_> =
                told.map(|(with, without)| (with.saturating_sub(without), with)).collect();
            told.sort_unstable();
            let (added, with) = told[ROUNDS / 2];
            let is_missed = place == WINDOW_P99 && number == 0 && added >= ADDED_MAX;
            is_fast &= !is_missed;
            cells.push(format!(
                "{} | {} ({} - {}){}",
                micros_text(with),
                micros_text(added),
                told[0].0.as_micros(),
                told[ROUNDS - 1].0.as_micros(),
                if is_missed { " MISSED" } else { "" },
            ));
        }
        println!("| {what} | {} |", cells.join(" | "));
    }
    Ok(is_fast)
}

/// How much an endpoint carries, asked by who has the processor of the generator.
fn most_per_second(endpoint: &Process) -> Result<f64, Error> {
    let client = Client {
        transport: Transport::Http,
        port: endpoint.ports().http,
        connections: USERS,
        keys: KEYS,
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // The first time all keys are new.
    runtime.block_on(client.run(WARM_UP))?;
    Ok(runtime.block_on(client.run(WARM_UP))?.per_second())
}

fn told(latencies: &Latencies) -> Told {
    PERCENTILES.map(|(_, is_of_windows, slower)| match is_of_windows {
        true => latencies.in_a_window_but_for(slower),
        false => latencies.but_for(slower),
    })
}

/// The round in the middle by its p99 of windows.
fn middle(mut rounds: Vec<Told>) -> Told {
    rounds.sort_by_key(|told| told[WINDOW_P99]);
    rounds[rounds.len() / 2]
}

fn micros_text(time: Duration) -> String {
    format!("{} us", time.as_micros())
}
