//! Diversity by features: the image farthest from all training images and from those chosen before, again and again (k-center greedy,
//! Sener and Savarese 2018, arXiv 1708.00489, Algorithm 1). Features are means over members, distances Euclidean.

use anyhow::{Context, Result};
use tch::{Kind, Tensor, no_grad};

use crate::inference::acquire::{Asked, Chosen, Entry, Features, Pool};

pub static ENTRY: Entry = Entry {
    key: "core-set",
    about: "farthest from training images and chosen ones by features (k-center greedy)",
    needs_members: false,
    needs_features: true,
    is_seeded: false,
    most: |_| None,
    choose,
};

/// The number of distances that are held at once while the nearest centres are looked for.
const AT_ONCE: i64 = 1 << 23;

fn choose(pool: &Pool, asked: Asked) -> Result<Vec<Chosen>> {
    let Features { pool, training } = pool.features.as_ref().context("core-set needs features")?;
    no_grad(|| greedy(pool, training, asked.count))
}

/// Returns the chosen rows of `pool: [N, d]`, with the distance of each from the nearest centre before it, at first one of
/// `centres: [M, d]`. The first of equally far rows is taken; without a centre, that is the first row.
fn greedy(pool: &Tensor, centres: &Tensor, count: usize) -> Result<Vec<Chosen>> {
    let mut nearest = from_nearest(pool, centres)?;
    let mut is_chosen = vec![false; nearest.len()];
    let mut chosen: Vec<Chosen> = Vec::new();
    for _ in 0..count.min(nearest.len()) {
        let free = (0..nearest.len()).filter(|row| !is_chosen[*row]);
        let Some(sample) = free.reduce(|a, b| if nearest[b] > nearest[a] { b } else { a }) else { break };
        chosen.push(Chosen { sample, score: nearest[sample] });
        is_chosen[sample] = true;
        let from_chosen = from_nearest(pool, &pool.narrow(0, sample as i64, 1))?;
        nearest.iter_mut().zip(from_chosen).for_each(|(nearest, distance)| *nearest = nearest.min(distance));
    }
    Ok(chosen)
}

/// Returns the distance of each row of `pool: [N, d]` from the nearest of `centres: [M, d]`; infinite if there is none. Distances are
/// products of matrices in f64, ‖a‖² + ‖b‖² − 2 a·b, of some rows at once.
fn from_nearest(pool: &Tensor, centres: &Tensor) -> Result<Vec<f64>> {
    let (count, centres) = (pool.size()[0], centres.to_kind(Kind::Double));
    if centres.size()[0] == 0 {
        return Ok(vec![f64::INFINITY; count as usize]);
    }
    let squares = |rows: &Tensor| (rows * rows).sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
    let (of_centres, transposed) = (squares(&centres), centres.transpose(0, 1));
    let rows = (AT_ONCE / centres.size()[0].max(centres.size()[1])).clamp(1, count.max(1));
    let mut nearest = Vec::with_capacity(count as usize);
    for start in (0..count).step_by(rows as usize) {
        let some = pool.narrow(0, start, rows.min(count - start)).to_kind(Kind::Double);
        let to_centres = &of_centres - some.matmul(&transposed) * 2.0;
        let squared = to_centres.amin([1i64].as_slice(), false) + squares(&some);
        nearest.extend(Vec::<f64>::try_from(squared.clamp_min(0.0).sqrt())?);
    }
    Ok(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a line with a centre at 0: 10 is the farthest, then 4 (4 from 0, 6 from 10), then 7 (3 from both 10 and 4).
    #[test]
    fn the_farthest_is_taken_again_and_again() {
        let rows = |numbers: &[f64]| {
            let both: Vec<f64> = numbers.iter().flat_map(|x| [*x, 0.0]).collect();
            Tensor::from_slice(&both).view([-1, 2]).to_kind(Kind::Float)
        };
        let chosen = greedy(&rows(&[1.0, 4.0, 7.0, 10.0, 9.5]), &rows(&[0.0]), 3).unwrap();
        let found: Vec<(usize, f64)> = chosen.iter().map(|one| (one.sample, one.score)).collect();
        assert_eq!(found, [(3, 10.0), (1, 4.0), (2, 3.0)]);
    }

    /// Distances by products, in several parts, beside those by differences.
    #[test]
    fn distances_are_those_of_differences() {
        tch::manual_seed(7);
        let draw = |count: i64| Tensor::randn([count, 5], (Kind::Float, tch::Device::Cpu));
        let (pool, centres) = (draw(37), draw(1 << 18));
        let near = from_nearest(&pool, &centres).unwrap();
        for row in [0, 20, 31, 32, 36] {
            let by_differences = (&centres - pool.get(row)).to_kind(Kind::Double).square();
            let squared = by_differences.sum_dim_intlist([1i64].as_slice(), false, Kind::Double).min();
            assert!((near[row as usize] - squared.sqrt().double_value(&[])).abs() < 1e-6);
        }
        let none = Tensor::zeros([0, 5], (Kind::Float, tch::Device::Cpu));
        assert!(from_nearest(&pool, &none).unwrap().iter().all(|distance| distance.is_infinite()));
        let copies = Tensor::ones([3, 5], (Kind::Float, tch::Device::Cpu));
        let chosen = greedy(&copies, &none, 3).unwrap();
        assert_eq!(chosen.iter().map(|one| one.sample).collect::<Vec<_>>(), [0, 1, 2], "no image twice");
    }
}
