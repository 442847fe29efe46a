//! Attacks move pixels within the L∞ ball of radius epsilon around an image, and within [0, 1], so that the loss of the
//! true label rises. They are untargeted. Each attack has one file and is registered in [`ATTACKS`]; it sees losses
//! and their gradients, never a model.

mod entries;
pub mod victim;

use anyhow::Result;
use tch::{Kind, Tensor};

pub use entries::ATTACKS;
pub use victim::{Resolution, Target, Victim};

/// A registered attack: its name, its one-line description and its constructor.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    pub build: fn(Settings) -> Box<dyn Attack>,
}

/// The settings of an iterative attack. Other attacks ignore them.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub steps: usize,
    /// The size of a step in pixel units; 2.5 epsilon / steps if absent (Madry et al. 2018, arXiv 1706.06083).
    pub step_size: Option<f64>,
    pub random_start: bool,
    pub seed: u64,
}

/// The images under attack: pixels `[B, 3, h, w]` in [0, 1], and their indices in the set, which seed random starts.
pub struct Clean<'a> {
    pub pixels: &'a Tensor,
    pub indices: &'a [u32],
}

/// The loss that an attack raises, at some pixels.
pub struct Slope {
    /// The loss of each image, `[B]`.
    pub losses: Tensor,
    /// The gradient of their sum, `[B, 3, h, w]`.
    pub gradient: Tensor,
}

/// A function that returns the loss at pixels `[B, 3, h, w]`. That of an image does not depend on the others.
pub type Loss<'a> = &'a dyn Fn(&Tensor) -> Result<Slope>;

/// A method of moving pixels to raise the loss.
pub trait Attack {
    /// Returns the moved pixels `[B, 3, h, w]`, one tensor per epsilon. Each pixel stays within epsilon of the clean
    /// one and within [0, 1].
    ///
    /// # Errors
    /// Fails if `loss` fails.
    fn run(&self, clean: &Clean, epsilons: &[f64], loss: Loss) -> Result<Vec<Tensor>>;

    /// Returns the settings that distinguish two rows, as part of the condition's name; empty if there are none.
    fn settings(&self, epsilon: f64) -> String;

    /// Returns the settings that distinguish two attacks at any budget; empty if there are none.
    fn variant(&self) -> String;
}

/// Returns the pixels nearest to `moved` (f64) that lie in [0, 1] and differ from the clean ones by at most epsilon,
/// exactly. Where rounding to the type of the pixels would leave the ball, the next number inside it is taken.
fn project(clean: &Tensor, moved: &Tensor, epsilon: f64) -> Tensor {
    let centre = clean.to_kind(Kind::Double);
    let inside = moved.maximum(&(&centre - epsilon)).minimum(&(&centre + epsilon)).clamp(0.0, 1.0);
    let rounded = inside.to_kind(clean.kind());
    let over = (rounded.to_kind(Kind::Double) - &centre).abs().gt(epsilon);
    rounded.nextafter(clean).where_self(&over, &rounded)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn budget_zero_changes_no_bit() {
        let clean = pixels(500);
        let loss = |x: &Tensor| {
            let losses = (x - 0.5).square().flatten(1, 3).sum_dim_intlist([1i64].as_slice(), false, Kind::Float) / 2.0;
            Ok(Slope { losses, gradient: x - 0.5 })
        };
        for entry in ATTACKS {
            let attack = (entry.build)(Settings { steps: 3, step_size: None, random_start: true, seed: 0 });
            let moved = attack.run(&Clean { pixels: &clean, indices: &[0] }, &[0.0], &loss).unwrap();
            assert!(moved[0].equal(&clean), "{}", entry.key);
        }
    }

    #[test]
    fn attacks_climb_a_concave_hill_inside_the_ball() {
        // The loss is −Σ (x − t)², whose best point in the ball is known.
        let clean = pixels(300);
        let target = clean.flip([3]);
        let slope = |x: &Tensor| {
            let losses = -(x - &target).square().flatten(1, 3).sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
            Ok(Slope { losses, gradient: (&target - x) * 2.0 })
        };
        let loss = |x: &Tensor| slope(x).unwrap().losses.double_value(&[0]);
        let epsilon = 0.05;
        let best = target.maximum(&(&clean - epsilon)).minimum(&(&clean + epsilon)).clamp(0.0, 1.0);
        let run = |key: &str, steps| {
            let entry = ATTACKS.iter().find(|entry| entry.key == key).unwrap();
            let attack = (entry.build)(Settings { steps, step_size: None, random_start: true, seed: 3 });
            let clean = Clean { pixels: &clean, indices: &[7] };
            attack.run(&clean, &[epsilon], &slope).unwrap().remove(0)
        };
        let (fgsm, pgd) = (run("fgsm", 1), run("pgd", 100));
        assert!(loss(&fgsm) > loss(&clean));
        assert!(loss(&pgd) > loss(&fgsm), "many small steps do not overshoot");
        assert!(largest_move(&pgd, &best) < 2.5 * epsilon / 100.0 + 1e-6);
        assert!(largest_move(&clean, &fgsm) <= epsilon && largest_move(&clean, &pgd) <= epsilon);
        assert!(run("pgd", 5).equal(&run("pgd", 5)), "random starts are fixed by the seed");
    }
}
