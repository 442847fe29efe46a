//! BatchBALD (Kirsch et al. 2019, arXiv 1906.08158): a batch whose labels together tell the most about the members,
//! H[y_1, …, y_b] − Σ_i mean_k H[p_k(y_i)], chosen greedily (Algorithm 1). The entropy of the joint labels is exact: all C^b of
//! them are enumerated, so batches are small.
//!
//! Differs from the authors' code: it draws joint labels where there are many; here such batches are refused.

use anyhow::Result;
use rayon::prelude::*;

use crate::inference::acquire::{Asked, Chosen, Entry, Pool};

pub static ENTRY: Entry = Entry {
    key: "batchbald",
    about: "highest mutual information of all chosen labels together and the members; small batches",
    needs_members: true,
    needs_features: false,
    is_seeded: false,
    most: |classes| Some((most(classes), "it enumerates all joint labels")),
    choose,
};

/// The most joint labels that are enumerated.
const MOST: f64 = 1e6;

fn choose(pool: &Pool, asked: Asked) -> Result<Vec<Chosen>> {
    let probabilities: Vec<Vec<Vec<f64>>> =
        (0..pool.predictions.samples()).map(|sample| pool.probabilities(sample)).collect();
    Ok(greedy(&probabilities, &pool.weights(), asked.count))
}

/// Returns the largest number of images whose joint labels are enumerated.
fn most(classes: usize) -> usize {
    (MOST.ln() / (classes as f64).ln() + 1e-9).floor() as usize
}

/// Returns the chosen samples with the mutual information of the batch up to each, given probabilities `[N, m, C]` and weights `[m]`
/// with the sum 1.
fn greedy(probabilities: &[Vec<Vec<f64>>], weights: &[f64], count: usize) -> Vec<Chosen> {
    let entropy = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
    let expected = |of: &Vec<Vec<f64>>| -> f64 {
        of.iter().zip(weights).map(|(row, weight)| weight * row.iter().map(|p| entropy(*p)).sum::<f64>()).sum()
    };
    let conditional: Vec<f64> = probabilities.iter().map(expected).collect();
    // The probabilities of the joint labels of the chosen samples, given each member: `[C^b]` rows of m numbers.
    let mut joint: Vec<Vec<f64>> = vec![vec![1.0; weights.len()]];
    let (mut chosen, mut spent) = (Vec::<Chosen>::new(), 0.0);
    for _ in 0..count.min(probabilities.len()) {
        let of_joint = |sample: usize| -> f64 {
            let members = &probabilities[sample];
            let each = |row: &Vec<f64>| -> f64 {
                let mean = |class: usize| -> f64 {
                    row.iter().zip(weights).zip(members).map(|((p, weight), own)| p * weight * own[class]).sum()
                };
                (0..members[0].len()).map(|class| entropy(mean(class))).sum()
            };
            joint.iter().map(each).sum()
        };
        let free = (0..probabilities.len()).filter(|sample| chosen.iter().all(|one| one.sample != *sample));
        let free: Vec<usize> = free.collect();
        let scored: Vec<(usize, f64)> =
            free.into_par_iter().map(|sample| (sample, of_joint(sample) - spent - conditional[sample])).collect();
        let Some((sample, score)) = scored.into_iter().reduce(|a, b| if b.1 > a.1 { b } else { a }) else { break };
        spent += conditional[sample];
        let classes = 0..probabilities[sample][0].len();
        let with = |row: &Vec<f64>, class: usize| -> Vec<f64> {
            row.iter().zip(&probabilities[sample]).map(|(p, own)| p * own[class]).collect()
        };
        joint = joint
            .iter()
            .flat_map(|row| classes.clone().map(move |class| (row, class)))
            .map(|(row, class)| with(row, class))
            .collect();
        chosen.push(Chosen { sample, score });
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::Golden;

    /// Two members are sure of opposite labels of samples 0 and 1, which are the same, and disagree less on sample 2. The first one tells
    /// ln 2, after which the copy tells nothing more: so the third one is next.
    #[test]
    fn a_copy_is_not_chosen() {
        let sure = vec![vec![1.0, 0.0], vec![0.0, 1.0]];
        let all = [sure.clone(), sure, vec![vec![0.9, 0.1], vec![0.5, 0.5]]];
        let chosen = greedy(&all, &[0.5, 0.5], 2);
        assert_eq!(chosen[0].sample, 0);
        assert!((chosen[0].score - 2f64.ln()).abs() < 1e-12 && (chosen[1].score - 2f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn batches_are_those_of_the_authors() {
        let golden = Golden::of_authors("batchbald");
        let all = golden.tensor("probabilities");
        let all: Vec<Vec<Vec<f64>>> = (0..all.size()[0])
            .map(|n| (0..all.size()[1]).map(|k| Vec::try_from(all.get(n).get(k)).unwrap()).collect())
            .collect();
        let members = all[0].len();
        let expected = Vec::<f64>::try_from(golden.tensor("scores")).unwrap();
        let chosen = greedy(&all, &vec![1.0 / members as f64; members], expected.len());
        let indices: Vec<f64> = chosen.iter().map(|one| one.sample as f64).collect();
        assert_eq!(indices, Vec::<f64>::try_from(golden.tensor("indices")).unwrap());
        for (one, expected) in chosen.iter().zip(expected) {
            assert!((one.score - expected).abs() < 1e-9, "{} {expected}", one.score);
        }
    }
}
