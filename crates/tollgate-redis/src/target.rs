//! The server that a call goes to.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use tokio::time::{Instant, timeout_at};

use crate::cluster::Cluster;
use crate::key::HashSlot;
use crate::lookup::ended;
use crate::sentinel::Sentinel;
use crate::server::Server;
use crate::transport::Failure;

/// One server for all keys, named by the user or by sentinels, or the nodes of a cluster.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Single(Arc<Server>),
    Sentinel(Arc<Sentinel>),
    Cluster(Arc<Cluster>),
}

/// Where a call goes next.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) server: Arc<Server>,
    /// Whether the server takes over the slot and wants to be told that this is known.
    pub(crate) asking: bool,
}

impl Route {
    pub(crate) const fn to(server: Arc<Server>) -> Self {
        Self { server, asking: false }
    }
}

impl Target {
    /// Returns what the user named: a server, the sentinels or the first nodes of a cluster.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Single(server) => server.name(),
            Self::Sentinel(sentinel) => sentinel.name(),
            Self::Cluster(cluster) => cluster.name(),
        }
    }

    /// Returns the servers that calls go to, as far as they are known.
    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        match self {
            Self::Single(server) => vec![Arc::clone(server)],
            Self::Sentinel(sentinel) => sentinel.known().into_iter().collect(),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Starts to connect, in the background.
    pub(crate) fn connect(&self) {
        // Calls look for what becomes of it.
        match self {
            Self::Single(server) => server.connect(),
            Self::Sentinel(sentinel) => sentinel.connect(),
            Self::Cluster(cluster) => drop(cluster.refresh()),
        }
    }

    /// Finds the servers and connects to each, with new attempts where calls fail at once by now.
    pub(crate) async fn connected(&self) -> Result<(), RedisError> {
        if self.servers().is_empty() {
            self.connect();
            match self {
                Self::Single(_) => {}
                Self::Sentinel(sentinel) => ended(sentinel.refresh()).await?,
                Self::Cluster(cluster) => ended(cluster.refresh()).await?,
            }
        }
        for server in self.servers() {
            if let Err(error) = server.link_by_new_attempt().await {
                self.suspect();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns where a call on a slot goes first.
    pub(crate) async fn route(
        &self,
        slot: HashSlot,
        patience: Duration,
        deadline: Instant,
    ) -> Result<Route, Failure> {
        if let Some(server) = self.known(slot) {
            return Ok(Route::to(server));
        }
        let looked = match self {
            Self::Single(server) => return Ok(Route::to(Arc::clone(server))),
            Self::Sentinel(sentinel) => {
                sentinel.connect();
                sentinel.lookup.fails_at_once(patience)?;
                timeout_at(deadline, sentinel.server()).await
            }
            Self::Cluster(cluster) => {
                drop(cluster.refresh());
                cluster.lookup.fails_at_once(patience)?;
                timeout_at(deadline, cluster.owner(slot)).await
            }
        };
        match looked {
            Ok(Ok(server)) => Ok(Route::to(server)),
            Ok(Err(error)) => Err(Failure::NotConnected(error)),
            Err(_) => Err(Failure::NoConnection),
        }
    }

    fn known(&self, slot: HashSlot) -> Option<Arc<Server>> {
        match self {
            Self::Single(server) => Some(Arc::clone(server)),
            Self::Sentinel(sentinel) => sentinel.known(),
            Self::Cluster(cluster) => cluster.known_owner(slot),
        }
    }

    /// Has the cluster or the sentinels asked who serves what, since a server does not answer as it
    /// should.
    pub(crate) fn suspect(&self) {
        match self {
            Self::Single(_) => {}
            Self::Sentinel(sentinel) => drop(sentinel.refresh()),
            Self::Cluster(cluster) => drop(cluster.refresh()),
        }
    }

    /// Returns another server that has the slot by now, if the cluster or the sentinels say so
    /// before the deadline.
    pub(crate) async fn replacement(
        &self,
        slot: HashSlot,
        failed: &Arc<Server>,
        patience: Duration,
        deadline: Instant,
    ) -> Option<Route> {
        let (lookup, look) = match self {
            Self::Single(_) => return None,
            Self::Sentinel(sentinel) => (&sentinel.lookup, sentinel.refresh()),
            Self::Cluster(cluster) => (&cluster.lookup, cluster.refresh()),
        };
        let other =
            || self.known(slot).filter(|server| !Arc::ptr_eq(server, failed)).map(Route::to);
        let route = other();
        if route.is_some() || lookup.fails_at_once(patience).is_err() {
            return route;
        }
        timeout_at(deadline, ended(look)).await.ok()?.ok()?;
        other()
    }

    /// Returns the node that an error names, which has the slot or takes it over.
    pub(crate) fn redirected(
        &self,
        slot: HashSlot,
        (address, answered): (&str, &Server),
        asking: bool,
    ) -> Option<Route> {
        let Self::Cluster(cluster) = self else { return None };
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse().ok()?;
        // A node that does not tell its host is where the one is that answered.
        let host = match host {
            "" | "?" => answered.address()?.0,
            host => host,
        };
        let server =
            if asking { cluster.node(host, port) } else { cluster.moved(slot, host, port) };
        Some(Route { server, asking })
    }
}
