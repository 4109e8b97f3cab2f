//! `tollgate rules`.

mod difference;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use tollgate_config::{ConfigErrors, RulesFile, RulesId};
use tollgate_server::{AdminClient, AdminError, Replacing, RulesError, RulesStatus, RulesVersion};

use self::difference::Difference;
use crate::args::{AdminService, Rules, RulesAction};
use crate::{EXIT_ERROR, EXIT_NO, console};

/// Why a command did not do what it was asked.
enum Failure {
    /// In words, with the exit status.
    Told(String, u8),
    Mistakes(ConfigErrors, u8),
}

impl Failure {
    /// Has another exit status than a difference has.
    fn not_a_difference(self) -> Self {
        match self {
            Self::Told(message, _) => Self::Told(message, EXIT_ERROR),
            Self::Mistakes(errors, _) => Self::Mistakes(errors, EXIT_ERROR),
        }
    }
}

pub(crate) async fn run(args: Rules) -> ExitCode {
    match act(args).await {
        Ok(status) => ExitCode::from(status),
        Err(Failure::Told(message, status)) => {
            console::explain(&format!("error: {message}\n"));
            ExitCode::from(status)
        }
        Err(Failure::Mistakes(errors, status)) => {
            console::explain(&format!("{}\n", errors.render(console::stderr_has_color())));
            ExitCode::from(status)
        }
    }
}

async fn act(args: Rules) -> Result<u8, Failure> {
    let client = client(&args.service)?;
    match args.action {
        RulesAction::Show { document } => show(&client, document).await,
        RulesAction::History => {
            console::print(&history(&client.history().await?));
            Ok(0)
        }
        RulesAction::Diff { file } => {
            let (_, rules) = read(&file).map_err(Failure::not_a_difference)?;
            let status = client.rules().await?;
            let difference = compare(&status, &rules)?;
            warn(rules.warnings.iter().map(ToString::to_string));
            console::print(&difference.in_words());
            Ok(if difference.is_none() { 0 } else { EXIT_NO })
        }
        RulesAction::Push { file, if_match, force } => push(&client, &file, if_match, force).await,
        RulesAction::Rollback { id } => {
            let before = client.rules().await?;
            let after = client.roll_back(id.as_ref()).await?;
            warn(&after.warnings);
            console::print(&changed(&before, &after)?);
            Ok(0)
        }
    }
}

fn client(service: &AdminService) -> Result<AdminClient, Failure> {
    let mut client = AdminClient::new(service.admin.clone());
    if service.admin.is_https() {
        let identity = service.cert.as_deref().zip(service.key.as_deref());
        client = client.with_tls(service.ca.as_deref(), identity)?;
    }
    if let Some(file) = &service.token_file {
        client = client.with_token(&text_of(file)?)?;
    }
    Ok(client)
}

async fn show(client: &AdminClient, document: bool) -> Result<u8, Failure> {
    let status = client.rules().await?;
    if document {
        let text = status.document.as_deref().unwrap_or_default();
        console::print(text);
    } else {
        console::print(&in_words(&status));
    }
    Ok(0)
}

async fn push(
    client: &AdminClient,
    file: &Path,
    if_match: Option<RulesId>,
    force: bool,
) -> Result<u8, Failure> {
    let (text, _) = read(file)?;
    let before = client.rules().await?;
    let is_toml = file.extension().is_some_and(|end| end.eq_ignore_ascii_case("toml"));
    if is_toml != (before.format == "toml") {
        let (source, format) = (&before.source.location, before.format.to_uppercase());
        return Err(Failure::Told(
            format!(
                "{} is {} and {source} is {format}, by their names: write the rules in {format}",
                file.display(),
                if is_toml { "TOML" } else { "YAML" },
            ),
            EXIT_NO,
        ));
    }
    let replacing = match (if_match, &before.id) {
        (Some(id), _) => Replacing::Id(id),
        (None, _) if force => Replacing::Any,
        (None, Some(id)) => Replacing::Id(parsed(id)?),
        (None, None) => Replacing::None,
    };
    let after = client.push(&text, &replacing).await?;
    warn(&after.warnings);
    console::print(&changed(&before, &after)?);
    Ok(0)
}

/// Says what is doubtful in the rules.
fn warn(warnings: impl IntoIterator<Item = impl std::fmt::Display>) {
    for warning in warnings {
        console::explain(&format!("warning: {warning}\n"));
    }
}

/// Says what a change has changed.
fn changed(before: &RulesStatus, after: &RulesStatus) -> Result<String, Failure> {
    let difference = Difference::between(&documented(before)?, &documented(after)?);
    let id = after.id.as_deref().unwrap_or("none");
    Ok(format!("{}in force: {id} ({})\n", difference.in_words(), counted(after.rules)))
}

fn compare(status: &RulesStatus, file: &RulesFile) -> Result<Difference, Failure> {
    Ok(Difference::between(&documented(status)?, file.text()))
}

/// Returns the rules of a status, one a line.
fn documented(status: &RulesStatus) -> Result<String, Failure> {
    let Some(document) = &status.document else { return Ok(String::new()) };
    if document.is_empty() {
        return Ok(String::new());
    }
    let file = RulesFile::parse(document, &format!("in-force.{}", status.format));
    file.map(|file| file.text().to_owned()).map_err(|_| {
        let message = "the service has rules that this version of tollgate cannot read";
        Failure::Told(message.to_owned(), EXIT_ERROR)
    })
}

fn read(file: &Path) -> Result<(String, RulesFile), Failure> {
    let text = text_of(file)?;
    match RulesFile::parse(&text, &file.display().to_string()) {
        Ok(rules) => Ok((text, rules)),
        Err(errors) => Err(Failure::Mistakes(errors, EXIT_NO)),
    }
}

fn text_of(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| {
        Failure::Told(format!("{} cannot be read: {error}", file.display()), EXIT_ERROR)
    })
}

fn parsed(id: &str) -> Result<RulesId, Failure> {
    id.parse().map_err(|error: tollgate_config::RulesIdError| {
        Failure::Told(error.to_string(), EXIT_ERROR)
    })
}

fn in_words(status: &RulesStatus) -> String {
    let id = status.id.as_deref().unwrap_or("none yet");
    let mut text = format!("in force  {id} ({})\n", counted(status.rules));
    let place = match status.source.kind.as_str() {
        "none" => "given by the application".to_owned(),
        kind => format!("{kind} {}", status.source.location),
    };
    text += &format!("from      {place}\n");
    if let (Some(origin), Some(since)) = (&status.origin, &status.applied_at) {
        text += &format!("since     {since}, {}\n", came(origin, status.by.as_deref()));
    }
    if let Some(error) = &status.error {
        let what = match error.kind.as_str() {
            "invalid" => "newer rules are refused",
            _ => "the source gives no rules",
        };
        text += &listed(what, error);
    }
    if let Some(limits) = &status.envoy_limits {
        let count =
            if limits.limits == 1 { "1 limit" } else { &format!("{} limits", limits.limits) };
        let how = came(&limits.origin, None);
        text += &format!("envoy     {} ({count}) of {}\n", limits.id, limits.directory);
        text += &format!("since     {}, {how}\n", limits.applied_at);
        if let Some(error) = &limits.error {
            let what = match error.kind.as_str() {
                "invalid" => "newer limits for Envoy are refused",
                _ => "the limits for Envoy cannot be read",
            };
            text += &listed(what, error);
        }
    }
    for warning in &status.warnings {
        text += &format!("warning   {warning}\n");
    }
    if !status.needs_restart.is_empty() {
        let sections = status.needs_restart.join(", ");
        text += &format!("restart   needed for what has changed in {sections}\n");
    }
    text
}

/// Lists what is wrong, a mistake a line.
fn listed(what: &str, error: &RulesError) -> String {
    let lines = error.message.lines().map(|line| format!("          {line}\n"));
    format!("error     {what} since {}:\n{}", error.since, lines.collect::<String>())
}

fn history(versions: &[RulesVersion]) -> String {
    let line = |version: &RulesVersion| {
        let came = came(&version.origin, version.by.as_deref());
        format!("{}  {}  {}, {came}\n", version.applied_at, version.id, counted(version.rules))
    };
    versions.iter().map(line).collect()
}

fn came(origin: &str, by: Option<&str>) -> String {
    let how = match origin {
        "config" => "from the configuration",
        "source" => "from the source",
        "kept" => "kept from before the start",
        "push" => "pushed",
        "rollback" => "rolled back",
        other => other,
    };
    by.map_or_else(|| how.to_owned(), |by| format!("{how} by {by}"))
}

fn counted(rules: usize) -> String {
    if rules == 1 { "1 rule".to_owned() } else { format!("{rules} rules") }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        let status = if error.is_refusal() { EXIT_NO } else { EXIT_ERROR };
        Self::Told(error.to_string(), status)
    }
}
