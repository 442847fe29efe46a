//! Converts the results of out-of-distribution detection to cells of a row.

use super::store::Row;
use crate::metrics::Average;
use crate::metrics::ood::{OOD_MEASURES, OodRow};

/// Adds the cells `average` and `score`, one cell for each measure (empty if undefined), and `definition`.
pub fn describe(found: &OodRow, row: &mut Row) {
    row.push("average", found.average.map_or("", Average::suffix));
    row.push("score", found.score.key);
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
        let found = OodRow { score: mutual_information, average: None, values: vec![None; OOD_MEASURES.len()] };
        let mut row = Row::new();
        describe(&found, &mut row);
        let columns: Vec<_> = row.cells().iter().map(|(column, _)| column.as_str()).collect();
        let measures = ["auroc", "aupr_in", "aupr_out", "fpr95", "detection_error"];
        assert_eq!(columns, [&["average", "score"], measures.as_slice(), &["definition"]].concat());
        assert!(measures.iter().all(|measure| row.get(measure) == Some("")));
    }
}
