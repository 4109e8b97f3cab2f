//! One line of a table: contenders that are measured in turns.

pub(crate) use tollgate_bench::Error;

/// What a figure counts, and which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nanoseconds a check, as one thread sees it.
    NanosPerCheck,
    Micros,
    BytesPerKey,
    /// Checks or requests a second.
    PerSecond,
}

impl Unit {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NanosPerCheck => "ns",
            Self::Micros => "us",
            Self::BytesPerKey => "B/key",
            Self::PerSecond => "/s",
        }
    }

    /// Whether a larger figure is the better one.
    const fn is_more_better(self) -> bool {
        matches!(self, Self::PerSecond)
    }
}

/// What a row must reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Nothing: the row informs.
    None,
    /// Ours is at least so many times as good as the other.
    Ratio(f64),
    /// Ours is at most this.
    AtMost(f64),
}

/// Takes one figure.
pub(crate) type Run = Box<dyn FnMut() -> Result<f64, Error>>;

/// Ours, and what it is compared with.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: Unit,
    /// How often each is measured after a first time that does not count. The rounds of a row are
    /// interleaved, so that what else the machine does meets all alike.
    pub(crate) rounds: usize,
    pub(crate) ours: Run,
    pub(crate) other: Option<(&'static str, Run)>,
    pub(crate) target: Target,
}

/// The figures of a row.
pub(crate) struct Measured {
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) ours: f64,
    pub(crate) other: Option<Other>,
    pub(crate) target: Target,
}

/// What ours was compared with.
pub(crate) struct Other {
    pub(crate) name: &'static str,
    pub(crate) figure: f64,
    /// How many times as good as this ours is, in the middle of all rounds.
    pub(crate) ratio: f64,
    /// The least and the most that a round gave.
    pub(crate) ratios: (f64, f64),
}

impl Row {
    /// Makes the row of a figure that stands alone and is the same each time.
    pub(crate) fn single(
        what: &str,
        unit: Unit,
        target: Target,
        ours: impl FnMut() -> Result<f64, Error> + 'static,
    ) -> Self {
        let (what, ours) = (what.to_owned(), Box::new(ours));
        Self { what, unit, rounds: 0, ours, other: None, target }
    }

    pub(crate) fn measure(&mut self) -> Result<Measured, Error> {
        let (mut ours, mut others, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=self.rounds {
            // Whoever goes first finds another machine than who goes second.
            let is_first = round % 2 == 0;
            let mut one = if is_first { Some((self.ours)()?) } else { None };
            let other = self.other.as_mut().map(|(_, run)| run()).transpose()?;
            let one = match one.take() {
                Some(one) => one,
                None => (self.ours)()?,
            };
            if round == 0 && self.rounds > 0 {
                continue;
            }
            ours.push(one);
            if let Some(other) = other {
                others.push(other);
                ratios.push(if self.unit.is_more_better() { one / other } else { other / one });
            }
        }
        let other = self.other.as_ref().map(|(name, _)| Other {
            name,
            figure: median(&mut others),
            ratio: median(&mut ratios),
            ratios: (ratios[0], ratios[ratios.len() - 1]),
        });
        let (what, unit, target) = (self.what.clone(), self.unit, self.target);
        Ok(Measured { what, unit, ours: median(&mut ours), other, target })
    }
}

impl Measured {
    pub(crate) fn is_kept(&self) -> bool {
        match self.target {
            Target::None => true,
            Target::Ratio(least) => self.other.as_ref().is_some_and(|other| other.ratio >= least),
            Target::AtMost(most) => self.ours <= most,
        }
    }
}

/// Sorts the figures and returns the one in the middle.
fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
