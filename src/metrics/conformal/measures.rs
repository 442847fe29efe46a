//! The measures of sets that result rows have.

use crate::metrics::metric::{Better, Column, Unit};

/// Every measure with the meaning of its column.
static MEASURES: [(&str, Column); 6] = [
    measure("set_coverage", "Coverage", "share of sets that hold the true class", Unit::Fraction, Better::Neither),
    measure("mean_set_size", "Set size", "mean number of classes of a set", Unit::One, Better::Lower),
    measure("empty_sets", "Empty sets", "share of sets without any class", Unit::Fraction, Better::Neither),
    measure("lowest_class", "Lowest class", "lowest coverage of a class", Unit::Fraction, Better::Higher),
    measure("lowest_group", "Lowest group", "lowest coverage of a group", Unit::Fraction, Better::Higher),
    measure(
        "lowest_set_size",
        "Lowest set size",
        "lowest coverage of images with sets of about one size",
        Unit::Fraction,
        Better::Higher,
    ),
];

const fn measure(
    key: &'static str,
    short: &'static str,
    definition: &'static str,
    unit: Unit,
    better: Better,
) -> (&'static str, Column) {
    (key, Column { short, definition, unit, better })
}

/// Returns the columns of the measures with their definitions.
pub fn measures() -> impl Iterator<Item = (&'static str, &'static str)> {
    MEASURES.iter().map(|(key, column)| (*key, column.definition))
}

/// Returns the meaning of a column of measures.
pub fn of_column(column: &str) -> Option<Column> {
    MEASURES.iter().find(|(key, _)| *key == column).map(|(_, column)| *column)
}
