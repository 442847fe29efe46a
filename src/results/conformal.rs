//! Converts the coverage of conformal sets to rows: one for all images, and one for each class, group and size of set.

use super::images::TESTED;
use super::store::{Identity, Row};
use crate::metrics::conformal::{Calibrated, Coverage, Part};
use crate::schema::Choice;

/// The cells that identify one measurement, which has a row for every stratum.
pub const SETS: Identity = Identity {
    keys: &["run", "set", "condition", "predictive", "score", "settings", "average", "thresholds", "draw", "alpha"],
    images: &[TESTED],
    keeps: None,
};

/// Returns the rows of one measurement, with `who` at the start of each.
pub fn rows(who: &Row, calibrated: &Calibrated, coverage: &Coverage) -> Vec<Row> {
    let row = |stratum: &crate::metrics::conformal::Stratum| {
        let mut row = who.clone();
        row.push("score", calibrated.rule.score.key);
        row.push("settings", calibrated.rule.settings());
        row.push("average", calibrated.average.suffix());
        row.push("thresholds", calibrated.rule.thresholds.word());
        row.push("draw", calibrated.rule.draw.word());
        row.push("alpha", calibrated.alpha.to_string());
        row.push("calibration_samples", calibrated.samples.to_string());
        row.push("part", stratum.part.word());
        row.push("name", &stratum.name);
        row.push("part_samples", stratum.samples.to_string());
        row.push_number("set_coverage", stratum.coverage);
        row.push_number("mean_set_size", Some(stratum.mean_set_size));
        row.push_number("empty_sets", Some(stratum.empty));
        let of_all = stratum.part == Part::All;
        for (column, part) in
            [("lowest_class", Part::Class), ("lowest_group", Part::Group), ("lowest_set_size", Part::SetSize)]
        {
            row.push_number(column, coverage.lowest(part).filter(|_| of_all));
        }
        row
    };
    coverage.strata.iter().map(row).collect()
}
