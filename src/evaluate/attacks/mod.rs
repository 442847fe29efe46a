//! Attacks move pixels within the L∞ ball of radius epsilon around an image, and within [0, 1], so that the true label is no
//! longer predicted. They are untargeted. Each attack has one file and is registered in [`ATTACKS`]; it sees a
//! [`Classifier`], never a model. Attacks that go on with the images that still resist share `resisting`.

mod attack;
mod auto_pgd;
mod boundary;
mod entries;
#[cfg(test)]
mod goldens;
mod resisting;
mod target;
pub mod victim;

use anyhow::Result;

use crate::base::small::Usage;

pub use attack::{Attack, Classifier, Clean, Entry, Goal, Goals, SEED_OF_RESTARTS, Scored, Settings, Slope, Version};
use attack::{one_by_one, project};
pub use entries::ATTACKS;
pub use target::{Resolution, Target};
pub use victim::{LINEARISED, Victim, Work};

/// Checks that there are enough classes for the loss of an attack and for the targets that are asked for.
///
/// # Errors
/// Fails if there are too few.
pub fn check_classes(entry: &Entry, settings: &Settings, classes: usize) -> Result<()> {
    if let Some(targets) = settings.targets.filter(|targets| *targets >= classes) {
        let most = classes - 1;
        let why = format!("--attack-targets {targets}: {classes} classes have {most} wrong ones: give at most {most}");
        return Err(Usage(why).into());
    }
    if classes < entry.classes {
        let able: Vec<&str> = ATTACKS.iter().filter(|other| other.classes <= classes).map(|other| other.key).collect();
        let why = format!(
            "--attack {}: its loss compares {} classes, and there are {classes}: use one that does with these ({})",
            entry.key,
            entry.classes,
            able.join(", ")
        );
        return Err(Usage(why).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tch::{Kind, Tensor};

    use super::*;

    fn pixels(count: i64) -> Tensor {
        let values: Vec<f32> = (0..count).map(|i| (i * 7919 % 1009) as f32 / 1008.0).collect();
        Tensor::from_slice(&values).view([1, 1, 1, count])
    }

    fn largest_move(clean: &Tensor, moved: &Tensor) -> f64 {
        (moved.to_kind(Kind::Double) - clean.to_kind(Kind::Double)).abs().max().double_value(&[])
    }

    #[test]
    fn no_pixel_leaves_the_ball_by_a_rounding() {
        let clean = pixels(1009);
        for epsilon in [0.0, 0.001, 0.005, 0.01, 0.03, 8.0 / 255.0, 1.0] {
            for sign in [-1.0, 1.0] {
                let moved = project(&clean, &(clean.to_kind(Kind::Double) + sign * epsilon), epsilon);
                assert_eq!(moved.kind(), Kind::Float);
                assert!(largest_move(&clean, &moved) <= epsilon, "{epsilon}");
                assert!(moved.min().double_value(&[]) >= 0.0 && moved.max().double_value(&[]) <= 1.0);
                // Pixels away from 0 and 1 move by all of epsilon, up to one rounding.
                let free = clean.gt(epsilon).logical_and(&clean.lt(1.0 - epsilon));
                let short = (moved - &clean).to_kind(Kind::Double).abs() - epsilon;
                let short = short.abs().where_self(&free, &Tensor::from(0.0));
                assert!(short.max().double_value(&[]) < 2e-7);
            }
        }
    }

    /// Two classes whose scores differ by twice a concave function of the pixels, which is highest at `best`.
    struct Hill {
        best: Tensor,
    }

    impl Hill {
        fn of(&self, x: &Tensor) -> Tensor {
            let height = -(x - &self.best).square().flatten(1, 3).sum_dim_intlist([1i64].as_slice(), false, None);
            Tensor::stack(&[&-&height, &height, &(&height - 9.0), &(&height - 10.0), &(&height - 11.0)], 1)
        }
    }

    impl Classifier for Hill {
        fn loss(&self, x: &Tensor, labels: &Tensor) -> Result<Slope> {
            let loss = |scores: &Tensor| -scores.gather(1, &labels.unsqueeze(1), false).squeeze_dim(1);
            Ok(self.climb(x, &loss)?.slope)
        }

        fn scores(&self, x: &Tensor) -> Result<Tensor> {
            Ok(self.of(x))
        }

        fn climb(&self, x: &Tensor, goal: Goal) -> Result<Scored> {
            let x = x.detach().set_requires_grad(true);
            let scores = self.of(&x);
            let losses = goal(&scores);
            let gradient = Tensor::run_backward(&[losses.sum(losses.kind())], &[&x], false, false).remove(0);
            Ok(Scored { scores: scores.detach(), slope: Slope { losses: losses.detach(), gradient } })
        }

        fn climbs(&self, x: &Tensor, goals: Goals, each: &mut dyn FnMut(Slope)) -> Result<()> {
            one_by_one(self, x, goals, each)
        }
    }

    fn quick() -> Settings {
        Settings { steps: Some(3), queries: Some(20), ..Settings::default() }
    }

    #[test]
    fn budget_zero_changes_no_bit() {
        let (clean, labels) = (pixels(500), Tensor::from_slice(&[0i64]));
        let hill = Hill { best: clean.flip([3]) };
        for entry in ATTACKS {
            let clean = Clean { pixels: &clean, labels: &labels, indices: &[0] };
            let moved = (entry.build)(quick()).run(&clean, &[0.0], &hill).unwrap();
            assert!(moved[0].equal(clean.pixels), "{}", entry.key);
        }
    }

    #[test]
    fn no_attack_leaves_the_ball() {
        let (clean, labels) = (pixels(500), Tensor::from_slice(&[0i64]));
        // The image is on the side of its label, near to the border.
        let hill = Hill { best: (&clean + 0.01).clamp(0.0, 1.0) };
        for entry in ATTACKS {
            let clean = Clean { pixels: &clean, labels: &labels, indices: &[0] };
            let moved = (entry.build)(quick()).run(&clean, &[0.05], &hill).unwrap();
            assert!(largest_move(clean.pixels, &moved[0]) <= 0.05, "{}", entry.key);
        }
    }

    #[test]
    fn attacks_climb_a_concave_hill_inside_the_ball() {
        // The loss is −Σ (x − t)², whose best point in the ball is known.
        let (clean, labels) = (pixels(300), Tensor::from_slice(&[0i64]));
        let target = clean.flip([3]);
        let hill = Hill { best: target.shallow_clone() };
        let loss = |x: &Tensor| -hill.of(x).double_value(&[0, 0]);
        let epsilon = 0.05;
        let best = target.maximum(&(&clean - epsilon)).minimum(&(&clean + epsilon)).clamp(0.0, 1.0);
        let run = |key: &str, steps| {
            let entry = ATTACKS.iter().find(|entry| entry.key == key).unwrap();
            let attack = (entry.build)(Settings { steps, seed: Some(3), ..Settings::default() });
            let clean = Clean { pixels: &clean, labels: &labels, indices: &[7] };
            attack.run(&clean, &[epsilon], &hill).unwrap().remove(0)
        };
        let (fgsm, pgd) = (run("fgsm", None), run("pgd", Some(100)));
        assert!(loss(&fgsm) > loss(&clean));
        assert!(loss(&pgd) > loss(&fgsm), "many small steps do not overshoot");
        assert!(largest_move(&pgd, &best) < 2.5 * epsilon / 100.0 + 1e-6);
        assert!(largest_move(&clean, &fgsm) <= epsilon && largest_move(&clean, &pgd) <= epsilon);
        assert!(run("pgd", Some(5)).equal(&run("pgd", Some(5))), "random starts are fixed by the seed");
    }

    #[test]
    fn an_option_that_is_not_read_is_refused() {
        let fgsm = ATTACKS.iter().find(|entry| entry.key == "fgsm").unwrap();
        let error = quick().check(fgsm).unwrap_err().to_string();
        assert_eq!(error, "--attack-steps: fgsm does not read it: leave it out");
    }

    #[test]
    fn targets_are_wrong_classes() {
        let entry = ATTACKS.iter().find(|entry| entry.key == "apgd-t").unwrap();
        let of = |targets: usize| check_classes(entry, &Settings { targets: Some(targets), ..quick() }, 10);
        assert!(of(9).is_ok() && check_classes(entry, &quick(), 5).is_ok());
        let error = of(20).unwrap_err().to_string();
        assert_eq!(error, "--attack-targets 20: 10 classes have 9 wrong ones: give at most 9");
    }
}
