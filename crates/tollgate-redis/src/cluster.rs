//! Which node of a Redis Cluster serves a slot.
//!
//! The client of the `redis` crate for clusters is not used, because it sends a command again whose
//! connection broke or whose answer is late, and a refund that is executed twice admits what was
//! never given back. Here each node has a connection as a single server has, with the same rules of
//! what is sent twice, and this module only knows which of them to ask.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use redis::{Cmd, ErrorKind, RedisError, Value};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::connection::{Connector, Link, timed_out};
use crate::key::HashSlot;
use crate::lookup::{Awaited, Lookup, ended};
use crate::server::Server;

/// How long one node may take to tell the slots.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the nodes that are known are asked alone, before those are that the user named.
const SEEDS_AFTER: Duration = Duration::from_millis(100);

/// How long a node without slots keeps its connections after a call was last sent there.
const GUEST_STAY: Duration = Duration::from_secs(60);

/// Of no node.
const NOBODY: u16 = u16::MAX;

type Address = (String, u16);

/// A Redis Cluster: its nodes with their connections, and who serves what.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The nodes that the user named. All are connected to as the first is.
    seeds: Vec<Connector>,
    map: RwLock<SlotMap>,
    pub(crate) lookup: Lookup,
}

#[derive(Debug)]
struct SlotMap {
    nodes: Vec<Arc<Server>>,
    /// For each slot the index of its node.
    owners: Box<[u16]>,
    /// Nodes that have no slot yet, but take some over: where calls were sent on to, and when.
    guests: Vec<(Arc<Server>, Instant)>,
}

impl SlotMap {
    fn empty() -> Self {
        let owners = vec![NOBODY; HashSlot::COUNT].into_boxed_slice();
        Self { nodes: Vec::new(), owners, guests: Vec::new() }
    }

    fn owner(&self, slot: HashSlot) -> Option<&Arc<Server>> {
        self.nodes.get(usize::from(self.owners[slot.index()]))
    }

    fn position(&self, host: &str, port: u16) -> Option<usize> {
        self.nodes.iter().position(|node| node.address() == Some((host, port)))
    }

    fn node(&self, host: &str, port: u16) -> Option<&Arc<Server>> {
        let mut known = self.nodes.iter().chain(self.guests.iter().map(|(guest, _)| guest));
        known.find(|server| server.address() == Some((host, port)))
    }
}

impl Cluster {
    /// Makes the cluster that the nodes at `seeds`, of which one must be there, belong to.
    pub(crate) fn new(seeds: Vec<Connector>) -> Self {
        Self { seeds, map: RwLock::new(SlotMap::empty()), lookup: Lookup::default() }
    }

    /// Returns `host:port` of the seeds, separated by commas.
    pub(crate) fn name(&self) -> String {
        let names: Vec<_> = self.seeds.iter().map(|seed| seed.endpoint.to_string()).collect();
        names.join(",")
    }

    /// Returns the nodes that are known.
    pub(crate) fn nodes(&self) -> Vec<Arc<Server>> {
        self.map.read().nodes.clone()
    }

    /// Returns the node that serves a slot, as far as is known.
    pub(crate) fn known_owner(&self, slot: HashSlot) -> Option<Arc<Server>> {
        self.map.read().owner(slot).cloned()
    }

    /// Returns the node that serves a slot, after asking the cluster if that is not known.
    pub(crate) async fn owner(self: &Arc<Self>, slot: HashSlot) -> Result<Arc<Server>, RedisError> {
        if let Some(owner) = self.known_owner(slot) {
            return Ok(owner);
        }
        ended(self.refresh()).await?;
        self.known_owner(slot).ok_or_else(|| {
            RedisError::from((
                ErrorKind::ClusterConnectionNotFound,
                "no node serves the slot of the key",
            ))
        })
    }

    /// Returns one slot of each node that serves any.
    pub(crate) fn slot_of_each(&self) -> Vec<HashSlot> {
        let map = self.map.read();
        let nodes = 0..map.nodes.len();
        nodes
            .filter_map(|node| {
                let index = map.owners.iter().position(|owner| usize::from(*owner) == node)?;
                HashSlot::new(u16::try_from(index).ok()?)
            })
            .collect()
    }

    /// Notes that a node serves a slot, and has the cluster asked for the rest.
    pub(crate) fn moved(self: &Arc<Self>, slot: HashSlot, host: &str, port: u16) -> Arc<Server> {
        let mut map = self.map.write();
        let position = map.position(host, port).unwrap_or_else(|| {
            let node = self.server_at(&map, host, port);
            map.nodes.push(node);
            map.nodes.len() - 1
        });
        map.owners[slot.index()] = u16::try_from(position).unwrap_or(NOBODY);
        let owner = Arc::clone(&map.nodes[position]);
        drop(map);
        drop(self.refresh());
        owner
    }

    /// Returns the node at an address, to which a call is sent on that it takes over the slot of.
    pub(crate) fn node(&self, host: &str, port: u16) -> Arc<Server> {
        let mut map = self.map.write();
        let node = self.server_at(&map, host, port);
        if map.position(host, port).is_none() {
            map.guests.retain(|(guest, _)| !Arc::ptr_eq(guest, &node));
            map.guests.push((Arc::clone(&node), Instant::now()));
        }
        node
    }

    /// Finds the server among those that are known, or makes it.
    fn server_at(&self, known: &SlotMap, host: &str, port: u16) -> Arc<Server> {
        match known.node(host, port) {
            Some(server) => Arc::clone(server),
            None => Arc::new(Server::new(self.seeds[0].to(host.to_owned(), port))),
        }
    }

    /// Joins the look at the slots that is under way, or starts one in the background.
    pub(crate) fn refresh(self: &Arc<Self>) -> Awaited {
        self.lookup.begin(|| {
            let cluster = Arc::clone(self);
            async move { cluster.ask_the_first_who_answers().await }
        })
    }

    async fn ask_the_first_who_answers(&self) -> Result<(), RedisError> {
        let nodes = self.nodes();
        let mut answers = JoinSet::new();
        let seeds_after = if nodes.is_empty() { Duration::ZERO } else { SEEDS_AFTER };
        for node in nodes {
            let ask = async move { slots(&node.link().await?, node.address()).await };
            answers.spawn(timeout(ANSWER_TIMEOUT, ask));
        }
        for seed in self.seeds.clone() {
            let ask = async move {
                sleep(seeds_after).await;
                slots(&seed.open().await?, seed.address()).await
            };
            answers.spawn(timeout(ANSWER_TIMEOUT + seeds_after, ask));
        }
        let mut failure = None;
        while let Some(answer) = answers.join_next().await {
            match answer {
                Ok(Ok(Ok(ranges))) => {
                    self.install(&ranges);
                    self.nodes().iter().for_each(|node| node.connect());
                    return Ok(());
                }
                Ok(Ok(Err(error))) => failure = Some(error),
                // One that was too late says less than one that refused.
                Ok(Err(_)) | Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(timed_out))
    }

    /// Puts what the cluster said in the place of what was known. Nodes that stay keep their
    /// connections.
    fn install(&self, ranges: &[Range]) {
        let mut map = self.map.write();
        let mut next = SlotMap::empty();
        let mut positions = HashMap::new();
        for Range { slots: (first, last), primary: (host, port) } in ranges {
            let position = *positions.entry((host, port)).or_insert_with(|| {
                next.nodes.push(self.server_at(&map, host, *port));
                next.nodes.len() - 1
            });
            let position = u16::try_from(position).unwrap_or(NOBODY);
            next.owners[usize::from(*first)..=usize::from(*last)].fill(position);
        }
        let is_guest = |(guest, since): &(Arc<Server>, Instant)| {
            since.elapsed() < GUEST_STAY && !next.nodes.iter().any(|node| Arc::ptr_eq(node, guest))
        };
        map.guests.retain(is_guest);
        next.guests = std::mem::take(&mut map.guests);
        *map = next;
    }
}

/// Slots, the first and the last, and the node that serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    slots: (u16, u16),
    primary: Address,
}

async fn slots(link: &Link, asked: Option<(&str, u16)>) -> Result<Vec<Range>, RedisError> {
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    let reply = link.send(&command).await?;
    let asked = asked.map_or("", |(host, _)| host);
    parse(&reply, asked).filter(|ranges| !ranges.is_empty()).ok_or_else(|| {
        RedisError::from((ErrorKind::UnexpectedReturnType, "the node serves no cluster"))
    })
}

/// Reads the reply to `CLUSTER SLOTS`. A node that does not tell its host is where `asked` is.
fn parse(reply: &Value, asked: &str) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    ranges.iter().map(|range| parse_range(range, asked)).collect()
}

fn parse_range(range: &Value, asked: &str) -> Option<Range> {
    let Value::Array(items) = range else { return None };
    let [first, last, Value::Array(primary), ..] = items.as_slice() else { return None };
    let slots = (number(first)?, number(last)?);
    let is_sound = slots.0 <= slots.1 && HashSlot::new(slots.1).is_some();
    let [host, port, ..] = primary.as_slice() else { return None };
    let host = match host {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::SimpleString(text) => text,
        _ => "",
    };
    let host = if matches!(host, "" | "?") { asked } else { host };
    is_sound.then_some(Range { slots, primary: (host.to_owned(), number(port)?) })
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
