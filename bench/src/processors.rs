//! Which processors a thread may have.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Error;

/// Who is to have a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The one who asks, which has the last processor for itself.
    Generator,
    /// All who are asked share the others.
    Service,
}

/// The processors of this process.
#[derive(Clone, Debug)]
pub struct Processors {
    all: CpuSet,
}

impl Processors {
    /// Takes those that this thread may have now.
    ///
    /// # Errors
    ///
    /// The system does not tell, or there is only one.
    pub fn new() -> Result<Self, Error> {
        let all = sched_getaffinity(None)?;
        match all.count() {
            0 | 1 => Err("the generator and the service need a processor each".into()),
            _ => Ok(Self { all }),
        }
    }

    /// Has this thread, and all that it starts from now on, run on the processors of a party.
    ///
    /// # Errors
    ///
    /// The system does not allow it.
    pub fn give_to(&self, party: Party) -> Result<(), Error> {
        let last = (0..CpuSet::MAX_CPU).rfind(|number| self.all.is_set(*number)).unwrap_or(0);
        let mut set = match party {
            Party::Generator => CpuSet::new(),
            Party::Service => self.all.clone(),
        };
        match party {
            Party::Generator => set.set(last),
            Party::Service => set.unset(last),
        }
        Ok(sched_setaffinity(None, &set)?)
    }
}
