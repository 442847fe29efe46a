//! Tables of rows of results, and of the classes of a run, on standard output.

use std::borrow::Cow;

use anyhow::Result;

use crate::base::outside::{csv_cell, print_drawn, printable};
use crate::base::small::{Usage, push_new, wrapped};
use crate::cli::options::TableArgs;
use crate::metrics::{Average, of_column};
use crate::report::figures::Material;
use crate::report::tables::classes::{rows_of_classes, rows_of_matrix, rows_of_mistakes};
use crate::report::tables::{conformal_columns, of_all_images, ood_columns, overview, overview_labels, result_columns};
use crate::report::{Sources, tables};
use crate::results::images::distinguish;
use crate::results::series::{CONFORMAL_KEYS, OOD_KEYS, RESULT_KEYS};
use crate::results::store::{Row, Table};
use crate::results::table::{Rest, Spec, Surface, average_of, averages_of, render, render_with};
use crate::schema::hint;

/// The number of rows up to which results are sorted by method and named as in the literature.
const MOST_NAMED: usize = 1000;

/// The kinds of rows that have tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Results,
    Ood,
    Conformal,
}

impl Kind {
    /// Returns the kind of rows in the table that `--table` names so.
    pub fn of_table(key: &str) -> Option<Kind> {
        match key {
            "results" => Some(Kind::Results),
            "ood" => Some(Kind::Ood),
            "conformal" => Some(Kind::Conformal),
            _ => None,
        }
    }

    /// Returns the rows of a results folder that the table shows.
    pub fn rows_of(self, sources: &Sources) -> Cow<'_, Table> {
        match self {
            Kind::Results => Cow::Borrowed(&sources.results),
            Kind::Ood => Cow::Borrowed(&sources.ood),
            Kind::Conformal => Cow::Owned(of_all_images(&sources.conformal)),
        }
    }

    /// Returns the columns that say what a row measures, besides its run.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Kind::Results => RESULT_KEYS,
            Kind::Ood => OOD_KEYS,
            Kind::Conformal => CONFORMAL_KEYS,
        }
    }

    fn columns(self, table: &Table) -> Vec<String> {
        match self {
            Kind::Results => result_columns(table),
            Kind::Ood => ood_columns(table),
            Kind::Conformal => conformal_columns(table),
        }
    }

    /// Prints rows in the way that was asked for.
    ///
    /// # Errors
    /// Fails if standard output cannot be written.
    pub fn print(self, table: &Table, how: &TableArgs) -> Result<()> {
        if how.csv {
            return print_csv(table);
        }
        match self {
            Kind::Results => {}
            Kind::Ood => println!("out-of-distribution detection"),
            Kind::Conformal => println!("conformal sets"),
        }
        let mut columns = self.columns(table);
        let numbers = columns.split_off(columns.iter().position(|column| is_metric(column)).unwrap_or(columns.len()));
        let numbers = shown_numbers(table, numbers, how);
        let can_be_named = (2..=MOST_NAMED).contains(&table.rows.len()) && !how.wide;
        let named = if can_be_named { overview(table, self.keys(), &numbers) } else { None };
        if named.is_some() {
            columns = overview_labels(self.keys());
        }
        let settings = if self == Kind::Conformal { settings_of_scores(table) } else { None };
        columns.retain(|column| !numbers.contains(column) && (settings.is_none() || column != SETTINGS));
        columns.extend(numbers);
        draw(named.as_ref().unwrap_or(table), columns, self.keys(), how);
        settings.into_iter().flatten().for_each(|line| println!("{line}"));
        // Intervals of numbers are of no average.
        let has_average = |row: usize| table.get(row, "average").is_some_and(|average| !average.is_empty());
        if self != Kind::Results && (0..table.rows.len()).any(has_average) {
            let width = surface(how).width.map_or(usize::MAX, usize::from);
            println!("{}", wrapped(&Average::legend(), width));
        }
        Ok(())
    }
}

/// The column with the settings of a conformal score.
const SETTINGS: &str = "settings";

/// Returns a line for each score that has settings, if every score has the same ones in all rows. `None` otherwise.
fn settings_of_scores(table: &Table) -> Option<Vec<String>> {
    let places = table.places(["score", SETTINGS]);
    let mut found: Vec<(&str, &str)> = vec![];
    (0..table.rows.len())
        .for_each(|row| push_new(&mut found, (table.cell(row, places[0]), table.cell(row, places[1]))));
    let is_single = |(score, _): &(&str, &str)| found.iter().filter(|(other, _)| other == score).count() == 1;
    let line = |(score, settings): &(&str, &str)| (!settings.is_empty()).then(|| format!("{score}: {settings}"));
    found.iter().all(is_single).then(|| found.iter().filter_map(line).collect())
}

/// Prints result rows that were just computed, in the way that was asked for.
///
/// # Errors
/// Fails, after printing, if a column was asked for that the rows do not have.
pub fn print_rows(rows: &[Row], how: &TableArgs) -> Result<()> {
    let table = table_of(rows);
    Kind::Results.print(&table, how)?;
    check_columns(&[&table], how)
}

/// Prints the mean, the standard deviation and the 95 % interval of runs that differ in their seeds, or with `--csv` their rows.
///
/// # Errors
/// Fails, after printing, if a column was asked for that the rows do not have.
pub fn print_intervals(rows: &[Row], how: &TableArgs) -> Result<()> {
    let table = table_of(rows);
    if how.csv {
        return print_csv(&table);
    }
    let metrics = result_columns(&table).into_iter().filter(|column| is_metric(column)).collect();
    let mut numbers = shown_numbers(&table, metrics, how);
    // Samples of another kind, such as numbers, leave columns empty.
    let has_value = |column: &String| (0..table.rows.len()).any(|row| !table.cell(row, table.index(column)).is_empty());
    numbers.retain(has_value);
    let sources = Sources { results: table, ..Sources::default() };
    for (heading, table) in tables::intervals(&sources, &numbers) {
        println!("{}", printable(&heading));
        draw(&table, table.columns.clone(), &["metric"], how);
    }
    let of = match averages_of(&numbers)[..] {
        [] => String::new(),
        [one] => format!(" {}", one.legend_of_one()),
        _ => format!(" {}", Average::legend()),
    };
    println!("The interval is that of the mean (Student's t).{of}");
    check_columns(&[&sources.results], how)
}

/// Prints out-of-distribution rows that were just computed.
///
/// # Errors
/// Fails if standard output cannot be written.
pub fn print_ood(rows: &[Row], how: &TableArgs) -> Result<()> {
    Kind::Ood.print(&table_of(rows), how)
}

/// Prints rows of conformal sets that were just computed, without those of parts of the images.
///
/// # Errors
/// Fails if standard output cannot be written.
pub fn print_conformal(rows: &[Row], how: &TableArgs) -> Result<()> {
    Kind::Conformal.print(&of_all_images(&table_of(rows)), how)
}

/// Draws columns of a table. The best cell is determined among rows that agree in `group_by`.
pub fn draw(table: &Table, columns: Vec<String>, group_by: &[&str], how: &TableArgs) {
    let group_by = group_by.iter().map(|column| column.to_string()).collect();
    let rest = if how.columns.is_empty() { Rest::Counted } else { Rest::Shown };
    print_drawn(&render_with(table, &Spec { columns, group_by, surface: surface(how) }, rest));
}

/// Returns rows as a table in which sets of other images have names of their own.
pub fn table_of(rows: &[Row]) -> Table {
    let mut table = Table::default();
    rows.iter().for_each(|row| table.append(row));
    distinguish(&mut [&mut table]);
    table
}

/// Returns the surface to print on, which has no limit to its width if all columns are asked for.
fn surface(how: &TableArgs) -> Surface {
    let surface = Surface::of_stdout();
    if how.wide { surface.without_limit() } else { surface }
}

fn is_metric(column: &str) -> bool {
    of_column(column).is_some()
}

/// Returns the numbers to print: those of the columns asked for that the table has, or else the usual ones. Of several
/// rows, one average is enough for a look: that of what was attacked, if something was.
pub fn shown_numbers(table: &Table, mut usual: Vec<String>, how: &TableArgs) -> Vec<String> {
    let asked: Vec<String> = how.columns.iter().filter_map(|column| find_column(table, column)).collect();
    if !asked.is_empty() {
        return asked;
    }
    if !how.wide
        && table.rows.len() > 1
        && let Some(shown) = average_of(table)
    {
        let is_other = |column: &String| {
            Average::ALL.iter().any(|one| *one != shown && column.ends_with(&format!("_{}", one.suffix())))
        };
        usual.retain(|column| !is_metric(column) || !is_other(column));
    }
    usual
}

/// Checks that every column that is asked for is in one of the tables.
///
/// # Errors
/// Fails if none has it.
pub fn check_columns(tables: &[&Table], how: &TableArgs) -> Result<()> {
    for name in &how.columns {
        if tables.iter().all(|table| find_column(table, name).is_none()) {
            let all = tables.iter().flat_map(|table| &table.columns);
            let stems = all.map(|column| column.trim_end_matches("_lm").trim_end_matches("_pm"));
            let near = hint(name, stems);
            let why = format!("--columns {name}: the results have no such column{near}; --csv prints all");
            return Err(Usage(why).into());
        }
    }
    Ok(())
}

/// Returns the column with this name, or the metric of averaged logits.
fn find_column(table: &Table, name: &str) -> Option<String> {
    let of_logits = format!("{name}_{}", Average::Logit.suffix());
    [name, of_logits.as_str()].into_iter().find(|column| table.index(column).is_some()).map(String::from)
}

/// Writes a table as CSV to standard output.
pub fn print_csv(table: &Table) -> Result<()> {
    let mut writer = csv::Writer::from_writer(std::io::stdout());
    writer.write_record(&table.columns)?;
    table
        .rows
        .iter()
        .try_for_each(|row| writer.write_record(row.iter().map(|cell| csv_cell(&printable(cell)).into_owned())))?;
    Ok(writer.flush()?)
}

/// The number of classes that are printed, the worst ones, unless all are asked for.
const MOST_CLASSES: usize = 20;

/// Prints the classes of a run on each of its clean test sets.
pub fn print_classes(sources: &Sources, how: &TableArgs) {
    let experiments = sources.by_experiment();
    let surface = surface(how);
    for one in Material::of(&experiments).iter().flat_map(Material::confusions) {
        let mut classes = rows_of_classes(&one);
        let count = classes.rows.len();
        if !how.wide {
            classes.rows.truncate(MOST_CLASSES);
        }
        println!("\nclasses of {}, the least accurate first", one.set);
        draw_all(&classes, surface);
        if classes.rows.len() < count {
            println!("{} more classes with --wide", count - classes.rows.len());
        }
        let matrix = rows_of_matrix(&one);
        match fits(&matrix, surface) {
            true => {
                println!("\ntrue class (rows) and predicted class (columns), by number of images");
                draw_all(&matrix, surface.without_limit());
            }
            false => {
                println!("\nclasses taken for each other most often");
                draw_all(&rows_of_mistakes(&one), surface);
            }
        }
    }
    println!("Matrix, figure and the most uncertain and wrong images: --out FOLDER, or --html FILE.html");
}

fn draw_all(table: &Table, surface: Surface) {
    print_drawn(&render(table, &Spec { columns: table.columns.clone(), group_by: vec![], surface }));
}

/// Returns whether a table is as wide as the surface at most.
fn fits(table: &Table, surface: Surface) -> bool {
    let widest = |column: usize| {
        let cells = table.rows.iter().map(|row| row[column].chars().count());
        cells.chain([table.columns[column].chars().count()]).max().unwrap_or(0)
    };
    let width: usize = (0..table.columns.len()).map(|column| widest(column) + 3).sum();
    surface.width.is_none_or(|most| width < usize::from(most))
}
