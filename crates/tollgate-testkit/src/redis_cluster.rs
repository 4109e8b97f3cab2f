//! A Redis Cluster of the test's own: real processes on free loopback ports.
//!
//! Each node is a [`RedisServer`] with an even part of the slots. Redis lets no node of a cluster
//! answer within two seconds of its start, so a cluster is slow to begin with: share one among the
//! tests of a binary, with keys of their own, unless they kill nodes.
//!
//! # Examples
//!
//! ```
//! use tollgate_testkit::RedisCluster;
//! use tollgate_testkit::redis_server::Reply;
//!
//! let cluster = RedisCluster::start(3)?;
//! let owner = cluster.node_of("{alice}:login")?;
//! assert_eq!(owner, cluster.node_of("{alice}:search")?);
//! let set = cluster.node(owner).command(&["SET", "{alice}:login", "1"])?;
//! assert_eq!(set, Reply::Text("OK".to_owned()));
//!
//! let other = cluster.node((owner + 1) % 3);
//! assert!(other.command(&["GET", "{alice}:login"]).unwrap_err().to_string().contains("MOVED"));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use crate::redis_server::{self, RedisServer};

/// The number of slots that the nodes of a cluster share.
pub const SLOTS: usize = 16_384;

/// How long the nodes may take to agree: several times what a loaded machine needs.
const AGREEMENT_DEADLINE: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running Redis Cluster that nobody else uses.
///
/// See the [module docs](self) for an example. Dropping it ends its nodes.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    replicas: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts `nodes` servers, gives each an even part of the slots and waits until every one says
    /// that the cluster is complete, for at most a minute.
    ///
    /// # Errors
    ///
    /// As [`RedisServer::start`]; [`io::ErrorKind::InvalidInput`] for no node at all or more than
    /// there are slots; [`io::ErrorKind::TimedOut`] if the nodes did not agree in time.
    pub fn start(nodes: usize) -> io::Result<Self> {
        Self::start_with(nodes, &RedisServer::builder())
    }

    /// As [`start`](Self::start), each node with the binary and the arguments of `builder`.
    ///
    /// A node that answers nothing for 5 s counts as failed to the others, unless
    /// `--cluster-node-timeout` says otherwise. While one is failed, none answers, unless
    /// `--cluster-require-full-coverage` is `no`.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(nodes: usize, builder: &redis_server::Builder) -> io::Result<Self> {
        if !(1..=SLOTS).contains(&nodes) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a cluster of {nodes} nodes cannot be: give 1 to {SLOTS}"),
            ));
        }
        let node = node_of(builder);
        let nodes = (0..nodes).map(|_| node.clone().start_node()).collect::<io::Result<_>>()?;
        let cluster = Self { nodes, replicas: Vec::new() };
        cluster.introduce()?;
        cluster.wait_until_complete()?;
        Ok(cluster)
    }

    /// As [`start_with`](Self::start_with), and gives each node a replica, which takes over by itself
    /// when its node has failed.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with_replicas(nodes: usize, builder: &redis_server::Builder) -> io::Result<Self> {
        let mut cluster = Self::start_with(nodes, builder)?;
        // Redis waits five seconds for more replicas otherwise.
        let replica = node_of(builder).args_before(&["--repl-diskless-sync-delay", "0"]);
        for node in &cluster.nodes {
            let replica = replica.clone().start_node()?;
            replica.command(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string()])?;
            cluster.replicas.push(replica);
        }
        cluster.wait_until_complete()?;
        let every = || cluster.nodes.iter().zip(&cluster.replicas);
        for (node, replica) in every() {
            let id = node.command(&["CLUSTER", "MYID"])?;
            replica.command(&["CLUSTER", "REPLICATE", id.text().unwrap_or_default()])?;
        }
        for (_, replica) in every() {
            wait_for(replica, || {
                let info = replica.command(&["INFO", "replication"])?;
                let is_up = |text: &str| text.lines().any(|l| l == "master_link_status:up");
                Ok(info.text().is_some_and(is_up))
            })?;
        }
        Ok(cluster)
    }

    /// Returns the nodes; those that were killed stay in their places.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Returns the node of that number, from 0.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn node(&self, index: usize) -> &RedisServer {
        &self.nodes[index]
    }

    /// Returns the replicas, each in the place of its node.
    pub fn replicas(&self) -> &[RedisServer] {
        &self.replicas
    }

    /// Returns `redis://127.0.0.1:PORT` of the first node.
    pub fn url(&self) -> String {
        self.nodes[0].url()
    }

    /// Returns `redis://127.0.0.1:PORT` of each node.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// Returns the number of the node that `key` belongs to, as a running node computes it.
    ///
    /// # Errors
    ///
    /// If no node answers.
    pub fn node_of(&self, key: &str) -> io::Result<usize> {
        let running = self.nodes.iter().find(|node| node.pid().is_some()).unwrap_or(&self.nodes[0]);
        let reply = running.command(&["CLUSTER", "KEYSLOT", key])?;
        let slot = reply.integer().and_then(|slot| usize::try_from(slot).ok());
        (0..self.nodes.len())
            .find(|index| slot.is_some_and(|slot| self.slots_of(*index).contains(&slot)))
            .ok_or_else(|| io::Error::other(format!("redis answered {reply:?} for a slot")))
    }

    /// Kills a node by `SIGKILL`, as [`RedisServer::kill`] does. The others find out after the
    /// `cluster-node-timeout`.
    ///
    /// # Errors
    ///
    /// If the process could not be waited for.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn kill(&mut self, index: usize) -> io::Result<()> {
        self.nodes[index].kill()
    }

    /// Starts a node again on the same port with the same slots and no data, and waits until every
    /// node says that the cluster is complete.
    ///
    /// That takes two seconds, and two node timeouts if the others had found out.
    ///
    /// # Errors
    ///
    /// As [`RedisServer::restart`], and if the nodes do not agree within a minute.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn restart(&mut self, index: usize) -> io::Result<()> {
        self.nodes[index].restart()?;
        self.wait_until_complete()
    }

    fn slots_of(&self, index: usize) -> Range<usize> {
        let count = self.nodes.len();
        SLOTS * index / count..SLOTS * (index + 1) / count
    }

    /// Gives the nodes their slots and tells each of the first one.
    fn introduce(&self) -> io::Result<()> {
        let first_port = self.nodes[0].port().to_string();
        for (index, node) in self.nodes.iter().enumerate() {
            // Nodes that begin with the same epoch would have to settle first who changes it.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
            let slots: Vec<_> = self.slots_of(index).map(|slot| slot.to_string()).collect();
            let mut add = vec!["CLUSTER", "ADDSLOTS"];
            add.extend(slots.iter().map(String::as_str));
            node.command(&add)?;
            if index > 0 {
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &first_port])?;
            }
        }
        Ok(())
    }

    fn wait_until_complete(&self) -> io::Result<()> {
        for node in self.nodes.iter().chain(&self.replicas) {
            wait_for(node, || self.is_complete_to(node))?;
        }
        Ok(())
    }

    fn is_complete_to(&self, node: &RedisServer) -> io::Result<bool> {
        let info = node.command(&["CLUSTER", "INFO"])?;
        let says = |line: &str| info.text().is_some_and(|text| text.lines().any(|l| l == line));
        let known = self.nodes.len() + self.replicas.len();
        Ok(says("cluster_state:ok")
            && says(&format!("cluster_slots_ok:{SLOTS}"))
            && says(&format!("cluster_known_nodes:{known}")))
    }
}

fn node_of(builder: &redis_server::Builder) -> redis_server::Builder {
    builder.clone().args_before(&[
        "--cluster-enabled",
        "yes",
        "--cluster-announce-ip",
        "127.0.0.1",
        "--cluster-node-timeout",
        "5000",
    ])
}

/// Waits for what a node says sooner or later.
fn wait_for(node: &RedisServer, is_so: impl Fn() -> io::Result<bool>) -> io::Result<()> {
    let deadline = Instant::now() + AGREEMENT_DEADLINE;
    while !is_so()? {
        if Instant::now() >= deadline {
            let info = node.command(&["CLUSTER", "INFO"])?;
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "the cluster is not complete after {AGREEMENT_DEADLINE:?}; {} says: {info:?}",
                    node.address()
                ),
            ));
        }
        pause();
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "what is waited for happens in other processes")]
fn pause() {
    thread::sleep(POLL_INTERVAL);
}
