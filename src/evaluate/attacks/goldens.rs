//! Attacks against the authors' package, on a small network, by the numbers of `scripts/make_attack_goldens.py`.

use anyhow::Result;
use tch::{Kind, Tensor};

use super::boundary::{Aim, search};
use super::resisting::{On, ranked};
use super::{ATTACKS, Classifier, Clean, Goal, Goals, Scored, Settings, Slope, auto_pgd, one_by_one};
use crate::base::golden::{Golden, near};

/// tanh((x − 1/2) W_1ᵀ) W_2ᵀ, in f64.
pub(super) struct Small {
    first: Tensor,
    second: Tensor,
}

impl Small {
    pub fn of(golden: &Golden) -> Small {
        Small { first: golden.tensor("first").transpose(0, 1), second: golden.tensor("second").transpose(0, 1) }
    }
}

impl Classifier for Small {
    fn loss(&self, x: &Tensor, labels: &Tensor) -> Result<Slope> {
        Ok(self.climb(x, &|scores| auto_pgd::cross_entropy(scores, labels))?.slope)
    }

    fn scores(&self, x: &Tensor) -> Result<Tensor> {
        Ok((x - 0.5).flatten(1, 3).matmul(&self.first).tanh().matmul(&self.second))
    }

    fn climb(&self, x: &Tensor, goal: Goal) -> Result<Scored> {
        let x = x.detach().set_requires_grad(true);
        let scores = self.scores(&x)?;
        let losses = goal(&scores);
        let gradient = Tensor::f_run_backward(&[losses.sum(losses.kind())], &[&x], false, false)?.remove(0);
        Ok(Scored { scores: scores.detach(), slope: Slope { losses: losses.detach(), gradient } })
    }

    fn climbs(&self, x: &Tensor, goals: Goals, each: &mut dyn FnMut(Slope)) -> Result<()> {
        one_by_one(self, x, goals, each)
    }
}

/// Runs `check` on the few images of the golden.
pub(super) fn on_few(check: impl Fn(&Golden, &On)) {
    let golden = Golden::of_authors("autoattack");
    let (pixels, labels) = (golden.tensor("images"), golden.tensor("labels").to_kind(Kind::Int64));
    let indices: Vec<u32> = (0..labels.size()[0] as u32).collect();
    let clean = Clean { pixels: &pixels, labels: &labels, indices: &indices };
    let small = Small::of(&golden);
    check(&golden, &On { clean: &clean, epsilon: golden.number("epsilon"), classifier: &small });
}

#[test]
fn walks_are_those_of_the_authors() {
    on_few(|golden, on| {
        let (labels, start) = (on.clean.labels, golden.tensor("start"));
        let targets = ranked(&on.classifier.scores(on.clean.pixels).unwrap(), 2);
        let goals: [(&str, Goal); 3] = [
            ("ce", &|scores| auto_pgd::cross_entropy(scores, labels)),
            ("dlr", &|scores| auto_pgd::dlr(scores, labels)),
            ("targeted", &|scores| auto_pgd::dlr_targeted(scores, labels, &targets)),
        ];
        for (name, goal) in goals {
            let walk = auto_pgd::walk(on, golden.number("steps") as usize, &start, goal).unwrap();
            near(&walk.best, &golden.tensor(&format!("walks/{name}/best")), 1e-5);
            near(&walk.wrong, &golden.tensor(&format!("walks/{name}/wrong")), 1e-5);
        }
    });
}

#[test]
fn boundaries_are_those_of_the_authors() {
    on_few(|golden, on| {
        // The authors' searches have a large budget, so that every point that they find counts.
        let on = On { epsilon: 10.0, ..*on };
        let steps = golden.number("steps") as usize;
        let towards = ranked(&on.classifier.scores(on.clean.pixels).unwrap(), 2);
        for (name, aim) in [("nearest", Aim::Nearest), ("targeted", Aim::Class(towards))] {
            let found = search(&on, steps, on.clean.pixels.shallow_clone(), &aim).unwrap();
            near(&found, &golden.tensor(&format!("boundaries/{name}")), 1e-5);
        }
    });
}

#[test]
fn projections_are_those_of_the_authors() {
    let golden = Golden::of_authors("autoattack");
    let of = |name: &str| golden.tensor(&format!("projections/{name}"));
    near(&super::boundary::onto(&of("points"), &of("normal"), &of("offset")), &of("step"), 1e-12);
}

/// The plane x_1 + 2 x_2 = 0.6 from (0.5, 0.5): both numbers fall by λ with 3 λ = 0.9, and from (0.1, 0.5) the first one stops at 0,
/// so that 2 λ = 0.5 − 0.1.
#[test]
fn a_projection_by_hand() {
    let points = Tensor::from_slice(&[0.5, 0.5, 0.1, 0.5]).view([2, 2]);
    let normal = Tensor::from_slice(&[1.0, 2.0, 1.0, 2.0]).view([2, 2]);
    let offset = Tensor::from_slice(&[0.6, 0.6]);
    let expected = Tensor::from_slice(&[-0.3, -0.3, -0.1, -0.2]).view([2, 2]);
    near(&super::boundary::onto(&points, &normal, &offset), &expected, 1e-12);
}

/// Random starts differ from the authors', so the shares of 60 images that resist may differ by two.
#[track_caller]
fn resist_as_with_the_authors(keys: &[&str]) {
    let golden = Golden::of_authors("autoattack");
    let (pixels, labels) = (golden.tensor("many/images"), golden.tensor("many/labels").to_kind(Kind::Int64));
    let indices: Vec<u32> = (0..labels.size()[0] as u32).collect();
    let clean = Clean { pixels: &pixels, labels: &labels, indices: &indices };
    let small = Small::of(&golden);
    let epsilon = golden.number("many/epsilons/1");
    for key in keys {
        let entry = ATTACKS.iter().find(|entry| entry.key == *key).unwrap();
        let queries = entry.reads.contains(&"queries").then_some(300);
        let attack = (entry.build)(Settings { queries, ..Settings::default() });
        let moved = attack.run(&clean, &[epsilon], &small).unwrap().remove(0);
        let right = small.scores(&moved).unwrap().argmax(-1, false).eq_tensor(&labels);
        let found = right.to_kind(Kind::Double).mean(Kind::Double).double_value(&[]);
        let expected = golden.number(&format!("many/robust/{key}/1"));
        eprintln!("{key}: {found}, the authors {expected}");
        assert!((found - expected).abs() < 2.5 / 60.0, "{key}: {found} {expected}");
    }
}

#[test]
fn as_many_images_resist_walks_as_with_the_authors() {
    resist_as_with_the_authors(&["apgd-ce", "apgd-dlr", "apgd-t"]);
}

#[test]
fn as_many_images_resist_searches_as_with_the_authors() {
    resist_as_with_the_authors(&["fab", "fab-t"]);
}

#[test]
fn as_many_images_resist_all_as_with_the_authors() {
    resist_as_with_the_authors(&["square", "autoattack"]);
}
