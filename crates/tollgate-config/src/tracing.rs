//! Where the service sends its traces.

use std::fmt;
use std::time::Duration;

use crate::rules_from::HttpUrl;

/// Where the service sends its traces.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TracingConfig {
    /// The collector of OpenTelemetry, if there is one.
    pub otlp: Option<OtlpConfig>,
}

/// A collector of OpenTelemetry, which is spoken to by OTLP over gRPC.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct OtlpConfig {
    /// Where it listens; [`ENDPOINT_DEFAULT`](Self::ENDPOINT_DEFAULT) unless set.
    pub endpoint: Option<HttpUrl>,
    /// Which requests are traced; [`Sampler::default`] unless set.
    pub sampler: Option<Sampler>,
    /// Headers that every export carries, the names in lower case. [`Debug`](fmt::Debug) hides the
    /// values, since there are tokens among them.
    pub headers: Vec<(String, String)>,
    /// How long an export may take, retries included; 10 s unless set.
    pub timeout: Option<Duration>,
    /// What the service is called; [`SERVICE_NAME_DEFAULT`](Self::SERVICE_NAME_DEFAULT) unless set.
    pub service_name: Option<String>,
}

/// Which requests are traced.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Sampler {
    /// Those whose caller traces them, and this part, from 0 to 1, of those that come without a
    /// trace.
    ParentBased(f64),
    /// This part of all traces, whatever the callers do.
    Ratio(f64),
}

impl Default for Sampler {
    fn default() -> Self {
        Self::ParentBased(OtlpConfig::SAMPLE_DEFAULT)
    }
}

impl OtlpConfig {
    /// Where a collector listens unless it is said otherwise.
    pub const ENDPOINT_DEFAULT: &str = "http://127.0.0.1:4317";

    /// What the service is called unless it is said otherwise.
    pub const SERVICE_NAME_DEFAULT: &str = "tollgate";

    /// The part of requests without a trace that are traced unless it is said otherwise.
    pub const SAMPLE_DEFAULT: f64 = 0.01;

    /// Returns the URL of the collector.
    pub fn address(&self) -> &str {
        self.endpoint.as_ref().map_or(Self::ENDPOINT_DEFAULT, HttpUrl::as_str)
    }
}

impl fmt::Debug for OtlpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("OtlpConfig")
            .field("endpoint", &self.endpoint)
            .field("sampler", &self.sampler)
            .field("headers", &headers)
            .field("timeout", &self.timeout)
            .field("service_name", &self.service_name)
            .finish()
    }
}

impl TracingConfig {
    /// Completes what is configured by the variables of OpenTelemetry, which `variable` looks up.
    /// What the file says counts more than they do.
    ///
    /// - `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` turns traces on.
    ///   Where `OTEL_EXPORTER_OTLP_PROTOCOL`, or the one for traces, is not `grpc`, it does not.
    /// - `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG` say which requests are traced.
    /// - `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT` or `OTEL_EXPORTER_OTLP_TIMEOUT` is the timeout, in
    ///   milliseconds.
    /// - `OTEL_SERVICE_NAME` is the name of the service.
    /// - `OTEL_SDK_DISABLED=true` and `OTEL_TRACES_EXPORTER=none` turn traces off.
    ///
    /// Returns the configuration, and what is wrong with variables that are therefore ignored.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::{Sampler, TracingConfig};
    ///
    /// let variable = |name: &str| match name {
    ///     "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://collector:4317".to_owned()),
    ///     "OTEL_TRACES_SAMPLER" => Some("parentbased_always_on".to_owned()),
    ///     _ => None,
    /// };
    /// let (tracing, ignored) = TracingConfig::default().with_environment(variable);
    /// assert_eq!(tracing.otlp.unwrap().sampler, Some(Sampler::ParentBased(1.0)));
    /// assert!(ignored.is_empty());
    /// ```
    pub fn with_environment(
        self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> (Self, Vec<String>) {
        let mut ignored = Vec::new();
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is = |name: &str, value: &str| {
            set(name).is_some_and(|set| set.trim().eq_ignore_ascii_case(value))
        };
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return (Self { otlp: None }, ignored);
        }
        let protocol = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
        let protocol = protocol.into_iter().find_map(|name| Some((name, set(name)?)));
        let other = protocol.filter(|(_, protocol)| protocol.trim() != "grpc");
        // Whoever listens there speaks something else.
        let names = match &other {
            None => &["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"][..],
            Some(_) => &[],
        };
        if let Some((name, protocol)) = other {
            ignored.push(format!(
                "{name}={protocol} is not spoken here, so the endpoint beside it is ignored: give \
                 one that takes grpc"
            ));
        }
        let endpoint = names.iter().find_map(|name| match endpoint(&set(name)?) {
            Ok(url) => Some(url),
            Err(problem) => {
                ignored.push(format!(
                    "{name} is ignored: {problem}: write it as {}",
                    OtlpConfig::ENDPOINT_DEFAULT
                ));
                None
            }
        });
        let Some(mut otlp) = self.otlp.or_else(|| endpoint.as_ref().map(|_| OtlpConfig::default()))
        else {
            return (Self { otlp: None }, ignored);
        };
        otlp.endpoint = otlp.endpoint.or(endpoint);
        otlp.service_name = otlp.service_name.or_else(|| set("OTEL_SERVICE_NAME"));
        otlp.timeout = otlp.timeout.or_else(|| {
            ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"]
                .into_iter()
                .find_map(|name| match set(name)?.trim().parse::<u64>() {
                    Ok(millis) if millis > 0 => Some(Duration::from_millis(millis)),
                    _ => {
                        ignored.push(format!("{name} is ignored: write whole milliseconds"));
                        None
                    }
                })
        });
        if otlp.sampler.is_none()
            && let Some(name) = set("OTEL_TRACES_SAMPLER")
        {
            match sampler(&name, set("OTEL_TRACES_SAMPLER_ARG").as_deref()) {
                Ok(sampler) => otlp.sampler = Some(sampler),
                Err(problem) => ignored.push(problem),
            }
        }
        (Self { otlp: Some(otlp) }, ignored)
    }
}

fn sampler(name: &str, argument: Option<&str>) -> Result<Sampler, String> {
    let ratio = || match argument.map(ratio) {
        None => Ok(1.0),
        Some(Some(ratio)) => Ok(ratio),
        Some(None) => Err(format!(
            "OTEL_TRACES_SAMPLER_ARG={} is ignored: write a number from 0 to 1",
            argument.unwrap_or_default()
        )),
    };
    Ok(match name.trim() {
        "always_on" => Sampler::Ratio(1.0),
        "always_off" => Sampler::Ratio(0.0),
        "traceidratio" => Sampler::Ratio(ratio()?),
        "parentbased_always_on" => Sampler::ParentBased(1.0),
        "parentbased_always_off" => Sampler::ParentBased(0.0),
        "parentbased_traceidratio" => Sampler::ParentBased(ratio()?),
        other => {
            return Err(format!(
                "OTEL_TRACES_SAMPLER={other} is ignored: it is one of always_on, always_off, \
                 traceidratio, parentbased_always_on, parentbased_always_off and \
                 parentbased_traceidratio"
            ));
        }
    })
}

/// Reads where a collector listens.
pub(crate) fn endpoint(text: &str) -> Result<HttpUrl, &'static str> {
    match HttpUrl::parse(text) {
        Ok(url) if url.target() == "/" => Ok(url),
        Ok(_) => Err("OTLP over gRPC has no path"),
        Err(HttpUrl::HAS_USER) => Err("the URL has a user: give it in `headers` instead"),
        Err(problem) => Err(problem),
    }
}

/// Reads a number from 0 to 1.
pub(crate) fn ratio(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a configuration beside these variables.
    fn beside(config: TracingConfig, set: &[(&str, &str)]) -> (Option<OtlpConfig>, Vec<String>) {
        let variable = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let (tracing, ignored) = config.with_environment(variable);
        (tracing.otlp, ignored)
    }

    fn configured(otlp: OtlpConfig) -> TracingConfig {
        TracingConfig { otlp: Some(otlp) }
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317");

    #[test]
    fn an_endpoint_in_the_environment_turns_traces_on_and_the_one_for_traces_counts_more() {
        assert_eq!(beside(TracingConfig::default(), &[]), (None, vec![]));
        let endpoint = |set: &[(&str, &str)]| {
            let (otlp, ignored) = beside(TracingConfig::default(), set);
            assert_eq!(ignored, [""; 0]);
            otlp.unwrap().endpoint.unwrap().as_str().to_owned()
        };
        assert_eq!(endpoint(&[ENDPOINT]), "http://a:4317");
        let for_traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b:4317");
        assert_eq!(endpoint(&[ENDPOINT, for_traces]), "http://b:4317");
    }

    #[test]
    fn the_file_counts_more_than_the_environment_but_for_turning_off() {
        let otlp = OtlpConfig {
            endpoint: Some(HttpUrl::parse("http://file:1").unwrap()),
            sampler: Some(Sampler::ParentBased(0.5)),
            timeout: Some(Duration::from_secs(1)),
            service_name: Some("edge".to_owned()),
            ..OtlpConfig::default()
        };
        let sampler = ("OTEL_TRACES_SAMPLER", "always_off");
        let name = ("OTEL_SERVICE_NAME", "other");
        let timeout = ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500");
        let (kept, _) = beside(configured(otlp.clone()), &[ENDPOINT, sampler, name, timeout]);
        assert_eq!(kept, Some(otlp.clone()));
        let set = [ENDPOINT, sampler, name, timeout];
        let (filled, _) = beside(configured(OtlpConfig::default()), &set);
        let filled = filled.unwrap();
        assert_eq!(filled.timeout, Some(Duration::from_millis(2_500)));
        assert_eq!(filled.service_name.as_deref(), Some("other"));
        assert_eq!(filled.sampler, Some(Sampler::Ratio(0.0)));
        for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(beside(configured(otlp.clone()), &[off]), (None, vec![]));
        }
    }

    #[test]
    fn samplers_are_those_of_the_specification() {
        for (name, argument, sampler) in [
            ("always_on", None, Sampler::Ratio(1.0)),
            ("always_off", None, Sampler::Ratio(0.0)),
            ("traceidratio", Some("0.25"), Sampler::Ratio(0.25)),
            ("parentbased_always_on", Some("0.25"), Sampler::ParentBased(1.0)),
            ("parentbased_always_off", None, Sampler::ParentBased(0.0)),
            ("parentbased_traceidratio", Some("0.25"), Sampler::ParentBased(0.25)),
            ("parentbased_traceidratio", None, Sampler::ParentBased(1.0)),
        ] {
            assert_eq!(super::sampler(name, argument), Ok(sampler), "{name}");
        }
    }

    #[test]
    fn a_variable_that_makes_no_sense_is_ignored_and_told() {
        for (name, value) in [
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4317"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4318/v1/traces"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ] {
            let (otlp, ignored) = beside(TracingConfig::default(), &[ENDPOINT, (name, value)]);
            let otlp = otlp.unwrap();
            assert_eq!((otlp.sampler, otlp.endpoint.unwrap().port()), (None, 4317));
            assert_eq!(ignored.len(), 1);
            assert!(ignored[0].starts_with(name), "{ignored:?}");
        }
        for argument in ["2", "-0.1", "NaN", "half"] {
            assert!(sampler("traceidratio", Some(argument)).is_err(), "{argument}");
        }
    }

    #[test]
    fn the_endpoint_of_another_protocol_is_none() {
        for (protocol, is_taken) in [("grpc", true), ("http/protobuf", false)] {
            let set = [ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
            let (otlp, ignored) = beside(TracingConfig::default(), &set);
            assert_eq!((otlp.is_some(), ignored.is_empty()), (is_taken, is_taken), "{protocol}");
        }
    }

    #[test]
    fn what_headers_hold_is_not_shown() {
        let headers = vec![("authorization".to_owned(), "Bearer hush".to_owned())];
        let shown = format!("{:?}", OtlpConfig { headers, ..OtlpConfig::default() });
        assert!(shown.contains("authorization") && !shown.contains("hush"), "{shown}");
    }
}
