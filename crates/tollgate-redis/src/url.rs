//! What the URLs say of the servers.

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use tollgate_core::StoreError;

use crate::error;
use crate::stream::Endpoint;

/// The forms of a URL of one server.
const FORM: &str = "redis://[user:password@]host[:port][/database], rediss:// for TLS, or \
                    redis+unix:///path";

const CLUSTER_FORM: &str =
    "redis+cluster://[user:password@]host[:port][,host[:port]...], or rediss+cluster:// for TLS";

const SENTINEL_FORM: &str = "redis+sentinel://[user:password@]host[:port][,host[:port]...]\
                             /master[/database], or rediss+sentinel:// for TLS";

/// One server, as a URL names it.
#[derive(Clone)]
pub(crate) struct Named {
    pub(crate) endpoint: Endpoint,
    pub(crate) is_tls: bool,
    pub(crate) login: RedisConnectionInfo,
}

/// Servers of one kind, as one URL names them.
pub(crate) enum Place {
    Single(Named),
    Cluster(Vec<Named>),
    Sentinel {
        sentinels: Vec<Named>,
        master: String,
        /// For the primary, unlike those of the sentinels.
        login: RedisConnectionInfo,
    },
}

impl Place {
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| unusable("no scheme", FORM))?;
        let single = match scheme {
            "redis+cluster" | "redis+sentinel" => "redis",
            "rediss+cluster" | "rediss+sentinel" => "rediss",
            _ => return Ok(Self::Single(Named::parse(url)?)),
        };
        let (user, hosts) = match rest.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), rest),
        };
        let (hosts, path) = hosts.split_once('/').unwrap_or((hosts, ""));
        let named = |user: &str| -> Result<Vec<_>, StoreError> {
            let hosts = hosts.split(',');
            hosts.map(|host| Named::parse(&format!("{single}://{user}{host}"))).collect()
        };
        if scheme.ends_with("+cluster") {
            if !path.is_empty() {
                return Err(unusable("a Redis Cluster has one database", CLUSTER_FORM));
            }
            return Ok(Self::Cluster(named(&user)?));
        }
        let (master, database) = path.split_once('/').unwrap_or((path, ""));
        if master.is_empty() {
            return Err(unusable("it names no master", SENTINEL_FORM));
        }
        let database = if database.is_empty() { "0" } else { database };
        let primary = Named::parse(&format!("{single}://{user}primary/{database}"))?;
        Ok(Self::Sentinel {
            sentinels: named("")?,
            master: master.to_owned(),
            login: primary.login,
        })
    }
}

impl Named {
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        let is_tls = url.starts_with("rediss://") || url.starts_with("valkeys://");
        // Streams are opened here, so only the names are left to the crate.
        let plain = match url.split_once("://") {
            Some(("rediss", rest)) => format!("redis://{rest}"),
            Some(("valkeys", rest)) => format!("valkey://{rest}"),
            _ => url.to_owned(),
        };
        if url.contains('#') {
            return Err(unusable("it has a '#', and certificates are always checked", FORM));
        }
        let info =
            plain.into_connection_info().map_err(|cause| unusable(&error::cause(&cause), FORM))?;
        let endpoint = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Endpoint::Tcp { host: host.clone(), port: *port },
            ConnectionAddr::Unix(path) => Endpoint::Unix(path.clone()),
            _ => return Err(unusable("its scheme is of no use here", FORM)),
        };
        Ok(Self { endpoint, is_tls, login: info.redis_settings().clone() })
    }
}

/// Makes the error of a URL that cannot be used. It is not shown, since what does not parse may hold
/// a password anywhere.
fn unusable(cause: &str, form: &str) -> StoreError {
    StoreError::invalid(format!("the redis URL cannot be used ({cause}): write it as {form}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(named: &[Named]) -> Vec<String> {
        named.iter().map(|one| one.endpoint.to_string()).collect()
    }

    #[test]
    fn the_url_of_a_server_names_where_it_is_and_who_connects() {
        for (url, endpoint, is_tls, database) in [
            ("redis://a", "a:6379", false, 0),
            ("rediss://a:1/3", "a:1", true, 3),
            ("valkeys://a:1", "a:1", true, 0),
            ("redis://[::1]:7", "[::1]:7", false, 0),
            ("redis+unix:///run/redis.sock?db=2", "/run/redis.sock", false, 2),
        ] {
            let named = Named::parse(url).unwrap();
            assert_eq!(named.endpoint.to_string(), endpoint);
            assert_eq!((named.is_tls, named.login.db()), (is_tls, database), "{url}");
        }
        let login = Named::parse("rediss://us%40er:p%3Aw@a").unwrap().login;
        assert_eq!((login.username(), login.password()), (Some("us@er"), Some("p:w")));
    }

    #[test]
    fn the_url_of_a_cluster_names_several() {
        let Place::Cluster(seeds) = Place::parse("rediss+cluster://u:p@a:1,b,c:3/").unwrap() else {
            panic!("no cluster");
        };
        assert_eq!(names(&seeds), ["a:1", "b:6379", "c:3"]);
        assert!(seeds.iter().all(|seed| seed.is_tls && seed.login.password() == Some("p")));
    }

    #[test]
    fn the_url_of_sentinels_names_the_master_and_who_connects_to_it() {
        let place = Place::parse("redis+sentinel://u:p@a:1,b:2/main/3").unwrap();
        let Place::Sentinel { sentinels, master, login } = place else { panic!("no sentinels") };
        assert_eq!(names(&sentinels), ["a:1", "b:2"]);
        assert!(sentinels.iter().all(|one| one.login.password().is_none()));
        assert_eq!((master.as_str(), login.password(), login.db()), ("main", Some("p"), 3));
    }

    #[test]
    fn a_url_that_cannot_be_used_is_not_shown() {
        for url in [
            "secret",
            "redis://secret@",
            "redis+cluster://u:secret@a/1",
            "redis+sentinel://u:secret@a:1",
            "redis+sentinel://u:secret@a:1/main/x",
            "rediss://u:secret@a/#insecure",
            "http://u:secret@a",
        ] {
            let error = Place::parse(url).err().unwrap_or_else(|| panic!("{url} passed"));
            assert!(error.is_invalid() && !error.to_string().contains("secret"), "{error}");
        }
    }
}
