//! Limits in the format of envoyproxy/ratelimit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tollgate_core::{FailurePolicy, Quota};

use crate::config::{parsed, text_from};
use crate::decode::Decoder;
use crate::envoy_files::EnvoyFiles;
use crate::error::{ConfigErrors, ConfigWarnings};
use crate::mistake::{Mistake, quoted};
use crate::rules_file::RulesId;
use crate::rules_from::RulesFrom;
use crate::source::Format;

/// How Envoy is answered, by whatever rules and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnvoyConfig {
    /// Whether each descriptor spends on its own, even in a request that another one denies. By
    /// default a denied request spends nothing.
    pub spend_on_denial: bool,
    /// Which headers Envoy is asked to add to responses.
    pub headers: EnvoyHeaders,
    /// How often a directory of limits is read although nothing has told of a change. The default
    /// is 5 s.
    pub poll_interval: Duration,
}

impl Default for EnvoyConfig {
    fn default() -> Self {
        Self {
            spend_on_denial: false,
            headers: EnvoyHeaders::default(),
            poll_interval: RulesFrom::POLL_INTERVAL_DEFAULT,
        }
    }
}

/// Which headers Envoy is asked to add to responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EnvoyHeaders {
    /// Those of a denial: `Retry-After`, and the type of the body.
    #[default]
    Denials,
    /// Those of a denial, and the limits on every response.
    All,
    /// None.
    None,
}

/// The limits of a directory in the format of envoyproxy/ratelimit.
///
/// The fields are described in `docs/envoy.md`. The format has three fields more here, all of them
/// optional and in `rate_limit`: `algorithm`, `burst` and `on_store_failure`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EnvoyLimits {
    /// The domains, no two of one name.
    pub domains: Vec<EnvoyDomain>,
    /// The id of what they say, whatever the files are called.
    pub id: RulesId,
    /// The directory that they were read from.
    pub directory: Option<PathBuf>,
    /// What is doubtful in them.
    pub warnings: ConfigWarnings,
    is_unread: bool,
}

/// The limits of one domain.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EnvoyDomain {
    /// Its name, which is not empty.
    pub name: String,
    /// The first level of its descriptors.
    pub descriptors: Vec<EnvoyDescriptor>,
}

/// What is limited: one entry of a request's descriptor, below the entries before it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EnvoyDescriptor {
    /// The key that the entry must have.
    pub key: String,
    /// The value that it must have, in which `*` stands for any run of characters; `None` for any
    /// value. No two descriptors of a level have one key and one value.
    pub value: Option<String>,
    /// The limit of requests whose last entry this is.
    pub limit: Option<EnvoyLimit>,
    /// Whether the limit is counted but never denies.
    pub shadow_mode: bool,
    /// Whether a request is denied only when all its limits of this kind are spent.
    pub quota_mode: bool,
    /// Whether all values that match share one count.
    pub share_threshold: bool,
    /// What Envoy is told of requests that the limit lets pass.
    pub metadata: Option<BTreeMap<String, Metadata>>,
    /// The next level.
    pub descriptors: Vec<Self>,
}

/// A limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnvoyLimit {
    /// How much may pass.
    pub amount: EnvoyAmount,
    /// The name that is reported, and by which other limits replace this one.
    pub name: Option<String>,
    /// The names of the limits that this one replaces in a request to which both apply.
    pub replaces: Vec<String>,
    /// What holds when the store cannot answer.
    pub on_store_failure: FailurePolicy,
}

/// How much a limit lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvoyAmount {
    /// Everything.
    Unlimited,
    /// So many requests per unit.
    PerUnit {
        /// The requests.
        requests: u32,
        /// The unit of time.
        unit: EnvoyUnit,
        /// How they are counted, or `None` if there are 0 and so every request is denied.
        quota: Option<Quota>,
    },
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EnvoyUnit {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// 7 days.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

/// A value of a descriptor's `metadata`.
#[derive(Clone, Debug, PartialEq)]
pub enum Metadata {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Self>),
    /// A mapping.
    Map(BTreeMap<String, Self>),
}

impl EnvoyUnit {
    /// All units, the shortest first.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// Returns the unit as the format writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// Returns its length. A month has 30 days and a year 365, wherever they begin.
    pub const fn period(self) -> Duration {
        const DAY: u64 = 86_400;
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        })
    }

    /// Returns the unit of this length, if there is one.
    pub fn of(period: Duration) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.period() == period)
    }
}

impl EnvoyLimits {
    /// Reads every `*.yaml` and `*.yml` of a directory, in the order of their names; directories in
    /// it and names that begin with a dot are passed over.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] with every mistake of all files; and if the directory or a file cannot be
    /// read, or if there is no such file in it.
    pub fn read(directory: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        EnvoyFiles::read(directory)?.limits()
    }

    /// Stands for the limits of a directory that could not be read, for a service that may have
    /// kept its last ones.
    #[must_use]
    pub fn unread(directory: impl Into<PathBuf>) -> Self {
        Self { directory: Some(directory.into()), is_unread: true, ..Self::default() }
    }

    /// Tells whether these are not the limits of their directory; see [`unread`](Self::unread).
    pub const fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Reads the limits of one file `name` of the format.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors`] with every mistake of the text.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::{EnvoyAmount, EnvoyLimits, EnvoyUnit};
    ///
    /// let text = "
    /// domain: shop
    /// descriptors:
    ///   - key: remote_address
    ///     rate_limit: { unit: minute, requests_per_unit: 20 }
    /// ";
    /// let limits = EnvoyLimits::parse(text, "shop.yaml")?;
    /// let limit = limits.domains[0].descriptors[0].limit.as_ref().unwrap();
    /// let EnvoyAmount::PerUnit { requests, unit, .. } = limit.amount else { panic!() };
    /// assert_eq!((requests, unit), (20, EnvoyUnit::Minute));
    ///
    /// let errors = EnvoyLimits::parse(&text.replace("minute", "fortnight"), "shop.yaml");
    /// let errors = errors.unwrap_err();
    /// assert_eq!(
    ///     errors.iter().next().unwrap().message(),
    ///     "`unit` cannot be `fortnight`"
    /// );
    /// # Ok::<(), tollgate_config::ConfigErrors>(())
    /// ```
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigErrors> {
        Self::collect(vec![(name.to_owned(), text.as_bytes().to_vec())])
    }

    pub(crate) fn collect(files: Vec<(String, Vec<u8>)>) -> Result<Self, ConfigErrors> {
        let mut all = Self::default();
        let mut owners: BTreeMap<String, String> = BTreeMap::new();
        // By domain, so that the names of the files make no difference.
        let mut said: BTreeMap<String, String> = BTreeMap::new();
        let mut failed: Option<ConfigErrors> = None;
        for (name, bytes) in files {
            let read = text_from(bytes, &name).and_then(|text| {
                parsed(&text, &name, Format::Yaml, |root, findings| {
                    let mut decoder = Decoder::new(Format::Yaml, &text, findings);
                    let (domain, span) = decoder.envoy_domain(root)?;
                    if let Some(owner) = owners.get(&domain.name) {
                        let message =
                            format!("the domain {} has a file already", quoted(&domain.name));
                        decoder.error(
                            Mistake::new(span, message)
                                .help(format!("put its descriptors into {owner}")),
                        );
                    }
                    Some((domain, root.canonical()))
                })
            });
            match read {
                Ok(((domain, text), warnings)) => {
                    said.insert(domain.name.clone(), text);
                    owners.insert(domain.name.clone(), name);
                    all.domains.push(domain);
                    all.warnings.append(warnings);
                }
                Err(errors) => match &mut failed {
                    Some(all) => all.append(errors),
                    None => failed = Some(errors),
                },
            }
        }
        match failed {
            Some(errors) => Err(errors),
            None => Ok(Self { id: RulesId::of_domains(said.values()), ..all }),
        }
    }

    /// Returns the number of limits, those without an amount included.
    pub fn len(&self) -> usize {
        fn count(descriptors: &[EnvoyDescriptor]) -> usize {
            let of =
                |one: &EnvoyDescriptor| usize::from(one.limit.is_some()) + count(&one.descriptors);
            descriptors.iter().map(of).sum()
        }
        self.domains.iter().map(|domain| count(&domain.descriptors)).sum()
    }

    /// Tells whether there is no limit.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
