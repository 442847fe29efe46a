//! Diversity by features: the image farthest from all training images and from those chosen before, again and again (k-center greedy,
//! Sener and Savarese 2018, arXiv 1708.00489, Algorithm 1). Features are means over members, distances Euclidean.

use anyhow::{Context, Result};

use crate::inference::acquire::{Asked, Chosen, Entry, Features, Pool};

pub static ENTRY: Entry = Entry {
    key: "core-set",
    about: "farthest from training images and chosen ones by features (k-center greedy)",
    needs_members: false,
    needs_features: true,
    choose,
};

fn choose(pool: &Pool, asked: Asked) -> Result<Vec<Chosen>> {
    let Features { pool, training } = pool.features.as_ref().context("core-set needs features")?;
    Ok(greedy(pool, training, asked.count))
}

/// Returns the chosen rows of `pool`, with the distance of each from the nearest centre before it. The first of equally far rows is
/// taken; without a centre, that is the first row.
fn greedy(pool: &[Vec<f64>], centres: &[Vec<f64>], count: usize) -> Vec<Chosen> {
    let distance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    let from_centres =
        |row: &Vec<f64>| centres.iter().map(|centre| distance(row, centre)).fold(f64::INFINITY, f64::min);
    let mut nearest: Vec<f64> = pool.iter().map(from_centres).collect();
    let mut chosen: Vec<Chosen> = Vec::new();
    for _ in 0..count.min(pool.len()) {
        let free = (0..pool.len()).filter(|row| chosen.iter().all(|one| one.sample != *row));
        let Some(sample) = free.reduce(|a, b| if nearest[b] > nearest[a] { b } else { a }) else { break };
        chosen.push(Chosen { sample, score: nearest[sample] });
        for (row, nearest) in nearest.iter_mut().enumerate() {
            *nearest = nearest.min(distance(&pool[row], &pool[sample]));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a line with a centre at 0: 10 is the farthest, then 4 (4 from 0, 6 from 10), then 7 (3 from both 10 and 4).
    #[test]
    fn the_farthest_is_taken_again_and_again() {
        let rows = |numbers: &[f64]| numbers.iter().map(|x| vec![*x, 0.0]).collect::<Vec<_>>();
        let chosen = greedy(&rows(&[1.0, 4.0, 7.0, 10.0, 9.5]), &rows(&[0.0]), 3);
        let found: Vec<(usize, f64)> = chosen.iter().map(|one| (one.sample, one.score)).collect();
        assert_eq!(found, [(3, 10.0), (1, 4.0), (2, 3.0)]);
    }
}
