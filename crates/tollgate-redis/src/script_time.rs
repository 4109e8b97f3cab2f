//! How long the servers execute scripts, by their own count.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connection::Link;
use crate::server::Server;
use crate::store::RedisStore;

/// The commands by which a script is executed, as servers count them.
const COMMANDS: [&str; 3] = ["eval", "evalsha", "fcall"];

/// How long one server may take to answer, connecting included, unless calls may take longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a server is not asked again that refuses to tell.
const REFUSED_FOR: Duration = Duration::from_secs(600);

/// How long a server has executed scripts since it started or its statistics were reset, whoever
/// sent them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScriptTime {
    /// `host:port` of the server, or the path of its socket.
    pub server: String,
    /// By which command: `eval`, `evalsha` or `fcall`.
    pub command: &'static str,
    /// How often.
    pub calls: u64,
    /// For how long altogether.
    pub took: Duration,
    /// The median and the 99th percentile, from Redis 7 on.
    pub percentiles: Option<(Duration, Duration)>,
}

/// The connections for statistics, apart from those of the calls.
#[derive(Debug, Default)]
pub(crate) struct Statistics(Mutex<HashMap<String, Source>>);

#[derive(Debug)]
enum Source {
    Open(Link),
    RefusedAt(Instant),
}

impl RedisStore {
    /// Asks the server, in a cluster each node that serves keys, how long it has executed scripts.
    ///
    /// It is asked on a connection of its own, so that no call waits behind the answer. A server that
    /// does not answer within a second, or within the deadline of calls if that is longer, is left
    /// out; one whose user may not `INFO` is asked again after ten minutes.
    ///
    /// This is for once in a while, not for every request.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, connections that were waited for are closed, and made anew the next
    /// time.
    pub async fn script_times(&self) -> Vec<ScriptTime> {
        let inner = &self.inner;
        let patience = PATIENCE.max(inner.transport.timeout);
        let mut sources = inner.statistics.0.lock().await;
        let servers = inner.transport.target.servers();
        // Nodes that are gone take their connections along.
        sources.retain(|name, _| servers.iter().any(|server| server.name() == *name));
        let mut asked = JoinSet::new();
        for server in servers {
            let name = server.name();
            let link = match sources.remove(&name) {
                Some(Source::RefusedAt(at)) if at.elapsed() < REFUSED_FOR => {
                    sources.insert(name, Source::RefusedAt(at));
                    continue;
                }
                Some(Source::Open(link)) if link.is_usable() => Some(link),
                _ => None,
            };
            asked.spawn(async move {
                let answer = timeout(patience, ask(&server, link)).await;
                (name, answer.ok().and_then(Result::ok))
            });
        }
        let mut times = Vec::new();
        while let Some(answer) = asked.join_next().await {
            let Ok((name, Some((source, text)))) = answer else { continue };
            times.extend(parse(&name, &text));
            sources.insert(name, source);
        }
        times.sort_by(|a, b| (&a.server, a.command).cmp(&(&b.server, b.command)));
        times
    }
}

/// Asks one server. What it refuses is an empty answer.
async fn ask(server: &Arc<Server>, link: Option<Link>) -> Result<(Source, String), RedisError> {
    let link = match link {
        Some(link) => link,
        None => server.open().await?,
    };
    let mut text = String::new();
    for section in ["commandstats", "latencystats"] {
        let mut command = Cmd::new();
        command.arg("INFO").arg(section);
        match link.send(&command).await {
            Ok(reply) => text += &redis::from_redis_value::<String>(reply)?,
            Err(error) if error.is_io_error() => return Err(error),
            Err(_) => return Ok((Source::RefusedAt(Instant::now()), String::new())),
        }
        text.push('\n');
    }
    Ok((Source::Open(link), text))
}

/// Reads the sections `commandstats` and `latencystats`. What is written in another way than known is
/// left out.
fn parse(server: &str, text: &str) -> Vec<ScriptTime> {
    let of = |prefix: &str, command: &str| {
        text.lines().find_map(|line| {
            line.trim().strip_prefix(prefix)?.strip_prefix(command)?.strip_prefix(':')
        })
    };
    let times = COMMANDS.into_iter().filter_map(|command| {
        let counted = of("cmdstat_", command)?;
        let percentiles = of("latency_percentiles_usec_", command);
        Some(ScriptTime {
            server: server.to_owned(),
            command,
            calls: field(counted, "calls")?.parse().ok()?,
            took: Duration::from_micros(field(counted, "usec")?.parse().ok()?),
            percentiles: percentiles.and_then(|of| Some((micros(of, "p50")?, micros(of, "p99")?))),
        })
    });
    times.collect()
}

fn field<'t>(fields: &'t str, name: &str) -> Option<&'t str> {
    fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

fn micros(fields: &str, name: &str) -> Option<Duration> {
    let micros: f64 = field(fields, name)?.parse().ok()?;
    Duration::try_from_secs_f64(micros / 1e6).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sections_of_every_version_are_read() {
        let five = "# Commandstats\r\n\
            cmdstat_hset:calls=9,usec=90,usec_per_call=10.00\r\n\
            cmdstat_evalsha:calls=3,usec=301,usec_per_call=100.33\r\n";
        let read = parse("a:1", five);
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].server.as_str(), read[0].command), ("a:1", "evalsha"));
        assert_eq!((read[0].calls, read[0].took), (3, Duration::from_micros(301)));
        assert_eq!(read[0].percentiles, None);

        let seven = "# Commandstats\r\n\
            cmdstat_eval:calls=1,usec=40,usec_per_call=40.00,rejected_calls=0,failed_calls=0\r\n\
            cmdstat_fcall:calls=2,usec=60,usec_per_call=30.00,rejected_calls=0,failed_calls=0\r\n\
            # Latencystats\r\n\
            latency_percentiles_usec_fcall:p50=29.055,p99=31.103,p99.9=31.103\r\n";
        let read = parse("a:1", seven);
        assert_eq!([read[0].command, read[1].command], ["eval", "fcall"]);
        let expected = (Duration::from_nanos(29_055), Duration::from_nanos(31_103));
        assert_eq!((read[0].percentiles, read[1].percentiles), (None, Some(expected)));
    }

    #[test]
    fn what_is_written_in_another_way_is_left_out() {
        for text in [
            "",
            "cmdstat_evalsha:",
            "cmdstat_evalsha:calls=3",
            "cmdstat_evalsha:calls=x,usec=1",
            "cmdstat_evalsha_ro:calls=3,usec=301",
            "cmdstat_evalsha:calls=-1,usec=1",
        ] {
            assert_eq!(parse("a:1", text), [], "{text}");
        }
        let odd = "cmdstat_eval:calls=1,usec=1\nlatency_percentiles_usec_eval:p50=-1,p99=NaN";
        assert_eq!(parse("a:1", odd)[0].percentiles, None);
    }
}
