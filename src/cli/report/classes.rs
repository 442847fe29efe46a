//! The classes of a run on standard output: the numbers of each, and which are taken for which.

use crate::base::outside::print_drawn;
use crate::cli::options::TableArgs;
use crate::report::Sources;
use crate::report::figures::Material;
use crate::report::tables::classes::{rows_of_classes, rows_of_matrix, rows_of_mistakes};
use crate::results::store::Table;
use crate::results::table::{Spec, Surface, render};

/// The number of classes that are printed, the worst ones, unless all are asked for.
const MOST_CLASSES: usize = 20;

/// Prints the classes of a run on each of its clean test sets.
pub fn print(sources: &Sources, how: &TableArgs) {
    let experiments = sources.by_experiment();
    let surface = if how.wide { Surface::of_stdout().without_limit() } else { Surface::of_stdout() };
    for one in Material::of(&experiments).iter().flat_map(Material::confusions) {
        let mut classes = rows_of_classes(&one);
        let count = classes.rows.len();
        if !how.wide {
            classes.rows.truncate(MOST_CLASSES);
        }
        println!("\nclasses of {}, the least accurate first", one.set);
        draw(&classes, surface);
        if classes.rows.len() < count {
            println!("{} more classes with --wide", count - classes.rows.len());
        }
        let matrix = rows_of_matrix(&one);
        match fits(&matrix, surface) {
            true => {
                println!("\ntrue class (rows) and predicted class (columns), by number of images");
                draw(&matrix, surface.without_limit());
            }
            false => {
                println!("\nclasses taken for each other most often");
                draw(&rows_of_mistakes(&one), surface);
            }
        }
    }
    println!("Matrix, figure and the most uncertain and wrong images: --out FOLDER, or --html FILE.html");
}

fn draw(table: &Table, surface: Surface) {
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
