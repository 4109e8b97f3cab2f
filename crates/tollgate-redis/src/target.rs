//! The server that a call goes to.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use crate::cluster::Cluster;
use crate::connection::Server;
use crate::key::HashSlot;
use crate::transport::Failure;

/// One server for all keys, or the nodes of a cluster.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Single(Arc<Server>),
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
    /// Returns `host:port`, of a cluster that of its seeds.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Single(server) => server.name(),
            Self::Cluster(cluster) => cluster.name(),
        }
    }

    /// Starts to connect, in the background.
    pub(crate) fn connect(&self) {
        // Calls look for what becomes of it.
        match self {
            Self::Single(server) => drop(server.connect()),
            Self::Cluster(cluster) => drop(cluster.refresh()),
        }
    }

    /// Returns where a call on a slot goes first.
    pub(crate) async fn route(&self, slot: HashSlot, deadline: Instant) -> Result<Route, Failure> {
        match self {
            Self::Single(server) => Ok(Route::to(Arc::clone(server))),
            Self::Cluster(cluster) => match cluster.known_owner(slot) {
                Some(server) => Ok(Route::to(server)),
                None => match timeout_at(deadline, cluster.owner(slot)).await {
                    Ok(Ok(server)) => Ok(Route::to(server)),
                    Ok(Err(error)) => Err(Failure::NotConnected(error)),
                    Err(_) => Err(Failure::NoConnection),
                },
            },
        }
    }

    /// Has a cluster asked who serves what, since a node does not answer as it should.
    pub(crate) fn suspect(&self) {
        if let Self::Cluster(cluster) = self {
            drop(cluster.refresh());
        }
    }

    /// Returns another node that serves the slot by now, if the cluster says so before the
    /// deadline.
    pub(crate) async fn replacement(
        &self,
        slot: HashSlot,
        failed: &Arc<Server>,
        deadline: Instant,
    ) -> Option<Route> {
        let Self::Cluster(cluster) = self else { return None };
        timeout_at(deadline, cluster.refreshed()).await.ok()?.ok()?;
        let owner = cluster.known_owner(slot)?;
        (!Arc::ptr_eq(&owner, failed)).then_some(Route::to(owner))
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
