//! `tollgate serve`.

use std::fmt::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use tokio::sync::oneshot;
use tollgate_config::{Config, OtlpConfig, StoreConfig};
use tollgate_core::{Rule, RuleSet};
use tollgate_server::{ServeError, Server};

use crate::args::Serve;
use crate::signals::{Hangups, Signals};
use crate::{EXIT_ERROR, configuration, console, words};

pub(crate) async fn run(args: Serve) -> ExitCode {
    let directory = args.envoy_config.as_deref();
    let Some(mut config) = configuration::read_with_envoy(args.config.as_deref(), directory) else {
        return ExitCode::from(EXIT_ERROR);
    };
    config.listen.http = args.http.unwrap_or(config.listen.http);
    config.listen.grpc = args.grpc.map_or(config.listen.grpc, |grpc| grpc.0);
    if directory.is_some() && config.listen.grpc.is_none() {
        console::explain("error: --envoy-config is for Envoy, and grpc is off: give --grpc ADDR\n");
        return ExitCode::from(EXIT_ERROR);
    }
    config.listen.admin = args.admin.unwrap_or(config.listen.admin);
    // A file is checked when it is read; these may have been set by options since.
    if let Some((one, other)) = config.listen.collision() {
        let port = if one == "http" { config.listen.http } else { config.listen.admin }.port();
        console::explain(&format!(
            "error: listen.{one} and listen.{other} both take port {port}: give each its own, with \
             --{one} ADDR or --{other} ADDR\n"
        ));
        return ExitCode::from(EXIT_ERROR);
    }
    let (tracing, ignored) = config.tracing.with_environment(|name| std::env::var(name).ok());
    config.tracing = tracing;
    for problem in ignored {
        tracing::warn!("{problem}");
    }
    let listening = Signals::listen().and_then(|signals| Ok((signals, Hangups::listen()?)));
    let (mut signals, mut hangups) = match listening {
        Ok(listening) => listening,
        Err(error) => {
            console::explain(&format!("error: signals cannot be received: {error}\n"));
            return ExitCode::from(EXIT_ERROR);
        }
    };
    let server = match Server::bind(&config).await {
        Ok(server) => server,
        Err(error) => {
            console::explain(&format!("error: {}\n", with_options(&error, &config)));
            return ExitCode::from(EXIT_ERROR);
        }
    };
    if args.config.is_none() && directory.is_none() {
        console::explain(&welcome(&config.rules, server.http_addr(), server.admin_addr()));
    }
    let source = match (&args.config, directory) {
        (Some(file), Some(directory)) => format!("{}, {}", file.display(), directory.display()),
        (Some(path), None) => path.display().to_string(),
        (None, Some(path)) => path.display().to_string(),
        (None, None) => "built-in example".to_owned(),
    };
    let grpc = server.grpc_addr().map_or_else(|| "off".to_owned(), |address| address.to_string());
    tracing::info!(
        http = %server.http_addr(),
        %grpc,
        admin = %server.admin_addr(),
        store = %store(&config.store),
        rules = server.limiter().rules().len(),
        rules_from = server.rules_from(),
        envoy_limits = server.envoy_limits(),
        traces_to = config.tracing.otlp.as_ref().map(OtlpConfig::address),
        config = %source,
        "serving"
    );
    let (stop, stopped) = oneshot::channel::<()>();
    let reload = server.reload();
    let running = server.run(async { drop(stopped.await) });
    tokio::pin!(running);
    loop {
        tokio::select! {
            () = &mut running => return ExitCode::SUCCESS,
            _ = signals.next() => break,
            () = hangups.next() => {
                tracing::info!("SIGHUP, looking for new rules, certificates and tokens");
                reload.now();
            }
        }
    }
    drop(stop);
    tokio::select! {
        () = running => ExitCode::SUCCESS,
        signal = signals.next() => {
            tracing::warn!("second signal, requests in flight are given up");
            ExitCode::from(signal.status())
        }
    }
}

/// Adds the option that sets the address at fault.
fn with_options(error: &ServeError, config: &Config) -> String {
    let option = match error.address() {
        Some(address) if address == config.listen.http => "--http",
        Some(address) if Some(address) == config.listen.grpc => "--grpc",
        Some(_) => "--admin",
        None => return error.to_string(),
    };
    format!("{error} with {option} ADDR")
}

fn store(config: &StoreConfig) -> String {
    match config {
        StoreConfig::Memory { .. } => "memory".to_owned(),
        StoreConfig::Redis(redis) => redis.servers.to_string(),
    }
}

/// Says what the service does without a configuration, and what to do next.
fn welcome(rules: &RuleSet, http: SocketAddr, admin: SocketAddr) -> String {
    let listed = listed(rules);
    format!(
        "\
No configuration was given, so these are the rules of the built-in example, with buckets in the
memory of this process:

{listed}
The 21st login from one address within a minute is denied. Ask once, or 21 times:

  curl -i http://{http}/v1/check -d '{{\"attributes\":{{\"path\":\"/login\",\"method\":\"POST\",\"ip\":\"203.0.113.7\"}}}}'
  curl -s 'http://{http}/v1/check?[1-21]' -o /dev/null -w '%{{http_code}}\\n' -d '{{\"attributes\":{{\"path\":\"/login\",\"method\":\"POST\",\"ip\":\"203.0.113.7\"}}}}'

What was counted is at http://{admin}/metrics

For rules of your own:

  tollgate example > tollgate.yaml
  tollgate serve --config tollgate.yaml

For one budget that all processes share, keep it in Redis; in tollgate.yaml:

  store:
    kind: redis
    url: redis://127.0.0.1:6379

"
    )
}

fn listed(rules: &RuleSet) -> String {
    let mut rules: Vec<&Rule> = rules.iter().map(AsRef::as_ref).collect();
    rules.sort_by_key(|rule| rule.domain());
    let width = rules.iter().map(|rule| rule.name().len()).max().unwrap_or(0);
    let mut text = String::new();
    for rule in rules {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {:width$}  {}", rule.name(), words::rule(rule));
    }
    text
}
