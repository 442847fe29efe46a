//! Tables of single classes on the clean test sets: accuracy, precision and F1, the pairs that are confused, and the
//! whole matrix.

use super::rendered::RenderedTable;
use crate::metrics::{accuracy, rounded};
use crate::report::figures::Material;
use crate::report::figures::confusion::OfSeries;
use crate::results::store::{Row, Table};

/// The number of confused pairs that are shown of a method on a set.
const MOST_PAIRS: usize = 10;

/// Returns the rows of the classes of a method, the worst first.
pub fn rows_of_classes(one: &OfSeries) -> Table {
    let mut table = Table::default();
    let mistakes = one.confusion.mistakes();
    for class in one.confusion.worst_first() {
        let mut row = Row::new();
        row.push("class", &one.classes[class]);
        row.push("samples", (one.confusion.samples(class) / one.seeds).to_string());
        for (column, value) in one.confusion.measures(class) {
            row.push_number(column, value);
        }
        let most = mistakes.iter().find(|mistake| mistake.label == class);
        let most = most.map(|most| format!("{} ({})", one.classes[most.predicted], most.samples));
        row.push("most_taken_for", most.unwrap_or_default());
        table.append(&row);
    }
    table
}

/// Returns the most frequent confusions of a method.
pub fn rows_of_mistakes(one: &OfSeries) -> Table {
    let mut table = Table::new(["true_class", "taken_for", "samples", "share_of_the_class"]);
    for mistake in one.confusion.mistakes().into_iter().take(MOST_PAIRS) {
        let share = mistake.samples as f64 / one.confusion.samples(mistake.label) as f64;
        table.rows.push(vec![
            one.classes[mistake.label].clone(),
            one.classes[mistake.predicted].clone(),
            mistake.samples.to_string(),
            format!("{:.1} %", 100.0 * share),
        ]);
    }
    table
}

/// Returns the counts of a method, a row for each true class.
pub fn rows_of_matrix(one: &OfSeries) -> Table {
    let names = one.classes.iter().map(String::as_str);
    let mut table = Table::new(std::iter::once("true class").chain(names));
    for (name, counts) in one.classes.iter().zip(&one.confusion.counts) {
        table.rows.push(std::iter::once(name.clone()).chain(counts.iter().map(u64::to_string)).collect());
    }
    table
}

/// Returns the tables of classes of all experiments: the classes and the confused pairs of every method, and the matrices,
/// each on its own.
pub fn of_materials(materials: &[Material]) -> [Vec<RenderedTable>; 2] {
    let (mut classes, mut pairs) = (table_of_classes(), table_of_mistakes());
    let mut matrices = vec![];
    for (material, one) in materials.iter().flat_map(|of| of.confusions().into_iter().map(move |one| (of, one))) {
        let method = material.series[one.series].name.clone();
        let who = [material.experiment.clone(), method.clone(), one.set.clone()];
        classes.rows.extend(rows_of_classes(&one).rows.into_iter().map(|row| [who.to_vec(), shown(row)].concat()));
        pairs.rows.extend(rows_of_mistakes(&one).rows.into_iter().map(|row| [who.to_vec(), row].concat()));
        let matrix = rows_of_matrix(&one);
        let heads = ["experiment", "method", "set"].into_iter();
        let columns: Vec<&str> = heads.chain(matrix.columns.iter().map(String::as_str)).collect();
        let rows = matrix.rows.into_iter().map(|row| [who.to_vec(), row].concat()).collect();
        let title = format!("Confusion matrix: {method} on {}", one.set);
        let caption = "The number of images of each true class (rows) that are predicted to be of each class (columns), all seeds together.";
        let key = format!("confusion-{}", matrices.len() + 1);
        matrices.push(RenderedTable { rows, ..table(&key, &title, caption, &columns, 4) });
    }
    if materials.len() < 2 {
        [&mut classes, &mut pairs].into_iter().chain(&mut matrices).for_each(without_first);
    }
    [vec![classes, pairs], matrices].map(|tables| {
        let counted = |table: RenderedTable| RenderedTable { matched: table.rows.len(), ..table };
        tables.into_iter().map(counted).collect()
    })
}

/// Returns the table of classes without rows.
fn table_of_classes() -> RenderedTable {
    table(
        "classes",
        "Classes",
        "Accuracy (recall), its 95 % interval over the images (Wilson), precision and F1 of each class on clean images, the \
         worst first; the class that most of its images are taken for, with their number. By the averaged logits, all seeds \
         of a method together, but for the images and the interval: the seeds predict the same images.",
        &[
            "experiment",
            "method",
            "set",
            "class",
            "images",
            "accuracy [%]",
            "precision [%]",
            "F1 [%]",
            "most taken for",
        ],
        4,
    )
}

/// Returns the table of confused pairs without rows.
fn table_of_mistakes() -> RenderedTable {
    table(
        "mistakes",
        "Confused classes",
        "The ten most frequent mistakes of each method on clean images: their number over all seeds, and their share of the true \
         class.",
        &["experiment", "method", "set", "true class", "taken for", "images", "share"],
        5,
    )
}

/// Returns the cells of a row of classes in percent, with the interval of the accuracy.
fn shown(row: Vec<String>) -> Vec<String> {
    let percent =
        |cell: &String| cell.parse().map_or(String::new(), |value: f64| rounded(100.0 * value, 2, 100.0 * value));
    let mut cells = row.clone();
    cells.iter_mut().take(5).skip(2).for_each(|cell| *cell = percent(cell));
    let share = row[2].parse().ok().zip(row[1].parse().ok());
    if let Some([low, high]) = share.and_then(|(share, samples)| accuracy::interval(share, samples)) {
        cells[2] += &format!(" [{:.1}, {:.1}]", 100.0 * low, 100.0 * high);
    }
    cells
}

/// Leaves out the first column, that of the experiment.
fn without_first(table: &mut RenderedTable) {
    table.labels -= 1;
    table.columns.remove(0);
    table.rows.iter_mut().for_each(|row| drop(row.remove(0)));
}

fn table(key: &str, title: &str, caption: &str, columns: &[&str], labels: usize) -> RenderedTable {
    RenderedTable {
        key: key.into(),
        title: title.into(),
        caption: caption.into(),
        columns: columns.iter().map(|column| column.to_string()).collect(),
        labels,
        rows: vec![],
        notes: vec![],
        matched: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::by_class::Confusion;

    #[test]
    fn seeds_that_predict_the_same_images_do_not_narrow_the_interval() {
        let classes = |seeds: u64| {
            let mut confusion = Confusion::new(2);
            confusion.counts = vec![vec![40 * seeds, 43 * seeds], vec![0, 10 * seeds]];
            let names = ["a", "b"].map(String::from).to_vec();
            let one = OfSeries { series: 0, set: "digits".into(), classes: names, seeds, confusion };
            rows_of_classes(&one).rows.into_iter().map(shown).collect::<Vec<_>>()
        };
        // scipy 1.17.1: binomtest(40, 83).proportion_ci(method="wilson")
        assert_eq!(classes(3)[0][..3], ["a", "83", "48.19 [37.8, 58.8]"]);
        assert!(classes(1).iter().zip(classes(3)).all(|(one, three)| one[..5] == three[..5]));
    }
}
