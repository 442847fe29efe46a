//! The metric by which epochs are compared.

use serde::Serialize;

use crate::metrics::{Average, Better, METRICS, Metric, NLL};
use crate::schema::{Field, Reader, Setting};

/// The metric of the held-out images by which epochs are compared, with its direction. Logits are averaged.
#[derive(Clone, Copy)]
pub struct Criterion(pub &'static Metric);

impl Criterion {
    /// Returns the metrics that have a direction.
    fn all() -> impl Iterator<Item = &'static Metric> {
        METRICS.iter().copied().filter(|metric| metric.better != Better::Neither)
    }

    /// Returns the metric that `train.select_by` names so.
    pub fn of_key(key: &str) -> Option<Criterion> {
        Criterion::all().find(|metric| metric.key == key).map(Criterion)
    }

    /// Returns the column of `train.csv` that has it.
    pub fn column(self) -> String {
        let columns = self.0.columns();
        let of_logits = columns.iter().find(|(_, average)| *average == Average::Logit).or(columns.first());
        format!("validation_{}", of_logits.map_or(self.0.key, |(column, _)| column))
    }

    /// Returns whether `value` is strictly better than `than`. A value that is not a number never is.
    pub fn gains(self, value: f64, than: f64) -> bool {
        if self.0.better == Better::Higher { value > than } else { value < than }
    }

    /// Returns a number that is lower for better values.
    pub fn cost(self, value: f64) -> f64 {
        if self.0.better == Better::Higher { -value } else { value }
    }

    /// Returns the adjective of a better value.
    pub fn better(self) -> &'static str {
        if self.0.better == Better::Higher { "higher" } else { "lower" }
    }

    /// Returns the adjective of the best value.
    pub fn best(self) -> &'static str {
        if self.0.better == Better::Higher { "highest" } else { "lowest" }
    }
}

impl PartialEq for Criterion {
    fn eq(&self, other: &Criterion) -> bool {
        self.0.key == other.0.key
    }
}

impl Setting for Criterion {
    type Range = ();

    fn field(reader: &Reader, key: &str, (): ()) -> Field<Criterion> {
        let named = |key: &str| Criterion::of_key(key).unwrap_or(Criterion(&NLL));
        reader.word_of(key, Criterion::all().map(|metric| metric.key).collect()).map(named)
    }

    fn stand_in() -> Criterion {
        Criterion(&NLL)
    }
}

impl Serialize for Criterion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.key)
    }
}
