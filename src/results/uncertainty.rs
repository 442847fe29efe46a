//! Converts what uncertainty was measured for to rows: the coverage of conformal sets (a row for all images, and one for each
//! class, group and size of set), and out-of-distribution detection.

use super::images::TESTED;
use super::store::{Identity, Row};
use crate::metrics::Average;
use crate::metrics::conformal::{Calibrated, Coverage, Part};
use crate::metrics::numbers::conformal::{Interval, Measured};
use crate::metrics::ood::{OOD_MEASURES, OodRow};
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

/// Returns the row of the intervals of a number over all samples, with `who` at its start.
pub fn interval_row(who: &Row, interval: &Interval, measured: Measured) -> Row {
    let mut row = who.clone();
    row.push("score", interval.score.key);
    // What is said of sets of classes is not said of intervals.
    ["settings", "average", "thresholds", "draw"].into_iter().for_each(|column| row.push(column, ""));
    row.push("alpha", interval.alpha.to_string());
    row.push("calibration_samples", interval.samples.to_string());
    row.push("part", Part::All.word());
    row.push("name", "");
    row.push("part_samples", measured.samples.to_string());
    row.push_number("set_coverage", Some(measured.coverage));
    row.push_number("mean_width", Some(measured.mean_width));
    row.push_number("empty_sets", Some(measured.empty));
    row
}

/// Adds the cells `average` and `score`, one cell for each measure (empty if undefined), and `definition`.
pub fn describe(found: &OodRow, row: &mut Row) {
    row.push("average", found.average.map_or("", Average::suffix));
    row.push("score", &found.score);
    for (measure, value) in OOD_MEASURES.iter().zip(&found.values) {
        row.push_number(measure.key, *value);
    }
    row.push("definition", found.definition());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::ood::OOD_SCORES;

    #[test]
    fn cells_follow_the_registry_and_an_undefined_score_is_empty() {
        let mutual_information = OOD_SCORES.iter().find(|score| score.key == "mi").unwrap();
        let (score, formula) = (mutual_information.key.to_string(), mutual_information.definition);
        let found = OodRow { score, formula, average: None, values: vec![None; OOD_MEASURES.len()] };
        let mut row = Row::new();
        describe(&found, &mut row);
        let columns: Vec<_> = row.cells().iter().map(|(column, _)| column.as_str()).collect();
        let measures = ["auroc", "aupr_in", "aupr_out", "fpr95", "detection_error"];
        assert_eq!(columns, [&["average", "score"], measures.as_slice(), &["definition"]].concat());
        assert!(measures.iter().all(|measure| row.get(measure) == Some("")));
    }
}
