//! Scores of features against pytorch-ood and OpenOOD, by the numbers of `scripts/make_ood_goldens.py`.

use tch::{Kind, Tensor};

use super::{Classifier, FEATURE_SCORES, Features};
use crate::base::golden::{Golden, near};
use crate::metrics::auroc::Ranking;
use crate::schema::find;

fn features(golden: &Golden) -> Features {
    Features {
        values: golden.tensor("features").to_kind(Kind::Float),
        labels: golden.tensor("labels").to_kind(Kind::Int64),
        classifier: Classifier { weight: golden.tensor("weight"), bias: golden.tensor("bias") },
    }
}

fn scores(golden: &Golden, key: &str) -> Tensor {
    let fitted = (find(FEATURE_SCORES, key).unwrap().fit)(&features(golden)).unwrap();
    fitted.scores(&golden.tensor("scored"))
}

/// Fails if two lists of scores differ by more than `bound` times their largest one.
#[track_caller]
fn near_in_size(found: &Tensor, expected: &Tensor, bound: f64) {
    let size = expected.abs().max().double_value(&[]);
    near(&(found / size), &(expected / size), bound);
}

/// The scale of pytorch-ood's Mahalanobis distance: half of the square, with a covariance over N − 1. Its ridge of 1e-6 is left.
#[test]
fn pytorch_ood_has_the_same_scores() {
    let golden = Golden::of_authors("ood");
    let of = |key: &str| golden.tensor(&format!("pytorch-ood/{key}"));
    near(&scores(&golden, "vim"), &of("vim"), 2e-5);
    near(&scores(&golden, "react"), &of("react"), 1e-7);
    near(&scores(&golden, "ash"), &of("ash"), 1e-7);
    near(&features(&golden).classifier.energy(&golden.tensor("scored")), &of("energy"), 1e-10);
    let count = features(&golden).count() as f64;
    near_in_size(&(scores(&golden, "mahalanobis") * 0.5 * (count - 1.0) / count), &of("mahalanobis"), 1e-4);
}

/// It leaves the covariance of all features undivided, so that the distance from their mean is N times smaller.
#[test]
fn the_relative_distance_differs_from_pytorch_ood_by_its_background() {
    let golden = Golden::of_authors("ood");
    let [found, nearest] = ["relative-mahalanobis", "mahalanobis"].map(|key| scores(&golden, key));
    let count = features(&golden).count() as f64;
    let theirs = &nearest * ((count - 1.0) / count) - (&nearest - found) / count;
    near_in_size(&theirs, &golden.tensor("pytorch-ood/relative-mahalanobis"), 1e-4);
}

/// OpenOOD computes in f32, and its nearest neighbours have squared distances.
#[test]
fn openood_has_the_same_scores() {
    let golden = Golden::of_authors("ood");
    for key in ["mahalanobis", "relative-mahalanobis", "vim", "react", "knn"] {
        let found = scores(&golden, key);
        let found = if key == "knn" { found.square() } else { found };
        near_in_size(&found, &golden.tensor(&format!("openood/{key}")), 1e-5);
    }
}

#[test]
fn both_measure_the_same_separation() {
    let golden = Golden::of_authors("ood");
    let of = |kind: &str| Vec::<f64>::try_from(golden.tensor(&format!("measures/{kind}"))).unwrap();
    let inside = of("inside").into_iter().map(|score| (score, false));
    let ranking = Ranking::new(inside.chain(of("outside").into_iter().map(|score| (score, true)))).unwrap();
    for package in ["pytorch-ood", "openood"] {
        let found = [ranking.auroc(), ranking.false_positive_rate_at(95)];
        assert!(found.iter().zip(of(package)).all(|(a, b)| (a - b).abs() < 1e-7), "{package}: {found:?}");
    }
}

/// A class without images has no mean, and a feature that never varies says nothing.
#[test]
fn absent_classes_and_constant_features_are_left_out() {
    let golden = Golden::of_authors("ood");
    let all = features(&golden);
    let classifier = || Classifier {
        weight: Tensor::zeros([9, 12], (Kind::Double, tch::Device::Cpu)),
        bias: Tensor::zeros([9], (Kind::Double, tch::Device::Cpu)),
    };
    let plain = scores(&golden, "mahalanobis");
    let more = Features { values: all.values.shallow_clone(), labels: &all.labels + 3, classifier: classifier() };
    let fitted = (find(FEATURE_SCORES, "mahalanobis").unwrap().fit)(&more).unwrap();
    near(&fitted.scores(&golden.tensor("scored")), &plain, 1e-9);
    let constant = |of: &Tensor| Tensor::cat(&[of, &of.narrow(1, 0, 1).ones_like()], 1);
    let wide = Features { values: constant(&all.values), ..more };
    let fitted = (find(FEATURE_SCORES, "mahalanobis").unwrap().fit)(&wide).unwrap();
    near(&fitted.scores(&constant(&golden.tensor("scored"))), &plain, 1e-9);
}

#[test]
fn too_few_images_are_refused() {
    let golden = Golden::of_authors("ood");
    let all = features(&golden);
    let few = Features { values: all.values.narrow(0, 0, 49), labels: all.labels.narrow(0, 0, 49), ..all };
    let error = (find(FEATURE_SCORES, "knn").unwrap().fit)(&few).err().unwrap().to_string();
    assert!(error.contains("takes the 50th nearest image, and there are 49"), "{error}");
}
