//! Attacks move pixels within the L∞ ball of radius epsilon around an image, and within [0, 1], so that the true label is no
//! longer predicted. They are untargeted. Each attack has one file and is registered in [`ATTACKS`]; it sees a
//! [`Classifier`], never a model. Attacks that go on with the images that still resist share `resisting`.

mod auto_pgd;
mod boundary;
mod entries;
#[cfg(test)]
mod goldens;
mod resisting;
pub mod victim;

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use crate::base::random::{Purpose, stream, uniform};
use crate::base::small::Usage;

pub use entries::ATTACKS;
pub use victim::{Resolution, Target, Victim, Work};

/// A registered attack: its name, its one-line description and its constructor.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    /// The options of the command line that it reads, without `--attack-`; [`SEED_OF_RESTARTS`] for a seed that its first start leaves
    /// alone.
    pub reads: &'static [&'static str],
    /// Whether it asks for scores of classes, beside the loss of the label.
    pub ranks: bool,
    /// The fewest classes that its loss compares.
    pub classes: usize,
    /// The numbers in f64 that it keeps for each number of a pixel, beside the pixels themselves.
    pub kept: u64,
    pub build: fn(Settings) -> Box<dyn Attack>,
}

/// The settings of an attack; what is absent has the attack's own default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The number of steps of each start.
    pub steps: Option<usize>,
    /// The size of a step in pixel units; 2.5 epsilon / steps if absent (Madry et al. 2018, arXiv 1706.06083).
    pub step_size: Option<f64>,
    /// Whether an attack that could start at a random point starts at the image.
    pub from_image: bool,
    /// The seed of random numbers; 0 if absent.
    pub seed: Option<u64>,
    /// The number of starts.
    pub restarts: Option<usize>,
    /// The number of classes that a targeted attack aims at, the most probable wrong ones first.
    pub targets: Option<usize>,
    /// The number of squares that are tried.
    pub queries: Option<usize>,
    /// The attacks of which one consists.
    pub version: Option<Version>,
}

/// What an attack reads whose first start is the image, and whose further ones are random.
pub const SEED_OF_RESTARTS: &str = "seed of restarts";

/// The number of classes that a targeted attack aims at, unless it is set.
const TARGETS: usize = 9;

crate::schema::words! {
    /// The attacks that AutoAttack runs one after the other.
    pub enum Version {
        /// `apgd-ce`, `apgd-t`, `fab-t`, `square`, each from one start.
        Standard = "standard",
        /// `apgd-ce`, `apgd-dlr` and `fab` from five starts each, `square`, `apgd-t`, `fab-t`.
        Plus = "plus",
    }
}

impl Settings {
    /// Checks that `entry` reads what is set.
    ///
    /// # Errors
    /// Fails if an option has no meaning for the attack.
    pub fn check(&self, entry: &Entry) -> Result<()> {
        let given = [
            ("steps", self.steps.is_some()),
            ("step-size", self.step_size.is_some()),
            ("from-image", self.from_image),
            ("restarts", self.restarts.is_some()),
            ("targets", self.targets.is_some()),
            ("queries", self.queries.is_some()),
            ("version", self.version.is_some()),
        ];
        if self.from_image && self.restarts.is_some_and(|count| count > 1) {
            let why = "--attack-restarts: with --attack-from-image every start is the same: leave one of them out";
            return Err(Usage(why.into()).into());
        }
        self.check_seed(entry)?;
        match given.iter().find(|(option, given)| *given && !entry.reads.contains(option)) {
            Some((option, _)) => {
                Err(Usage(format!("--attack-{option}: {} does not read it: leave it out", entry.key)).into())
            }
            None => Ok(()),
        }
    }

    /// Checks that a seed that is set changes something.
    fn check_seed(&self, entry: &Entry) -> Result<()> {
        let (draws, restarts) = (entry.reads.contains(&"seed"), entry.reads.contains(&SEED_OF_RESTARTS));
        let why = match self.seed {
            Some(_) if self.from_image && (draws || restarts) => "every start is the image (--attack-from-image)",
            Some(_) if restarts && self.starts() == 1 => {
                "its only start is the image; --attack-restarts adds random ones"
            }
            Some(_) if !draws && !restarts => "it draws nothing",
            _ => return Ok(()),
        };
        Err(Usage(format!("--attack-seed: {} does not read it, since {why}: leave it out", entry.key)).into())
    }

    /// Returns the number of starts.
    fn starts(&self) -> u64 {
        self.restarts.unwrap_or(1) as u64
    }

    /// Returns the ranks of the classes to aim at, each with the numbers of its starts. Rank 0 is the predicted class.
    fn aims(&self) -> impl Iterator<Item = (usize, u64)> + use<> {
        let starts = self.starts();
        (1..=self.targets.unwrap_or(TARGETS)).flat_map(move |target| (0..starts).map(move |number| (target, number)))
    }

    fn words_of_starts(&self) -> String {
        self.restarts.filter(|count| *count > 1).map_or(String::new(), |count| format!(" {count} starts"))
    }

    fn words_of_targets(&self) -> String {
        self.targets.filter(|count| *count != TARGETS).map_or(String::new(), |count| format!(" {count} targets"))
    }

    fn words_of_steps(&self, default: usize) -> String {
        format!(" {} steps{}{}", self.steps.unwrap_or(default), self.words_of_starts(), self.start_words())
    }

    /// Returns the words of the starting point, which are absent for the default one.
    fn start_words(&self) -> String {
        if self.from_image { " from the image".to_string() } else { self.seed_words() }
    }

    /// Returns the words of a seed, which are absent for the default one.
    fn seed_words(&self) -> String {
        if self.seed() == 0 { String::new() } else { format!(" seed {}", self.seed()) }
    }

    /// Returns the seed of random numbers.
    fn seed(&self) -> u64 {
        self.seed.unwrap_or(0)
    }

    /// Returns uniform numbers in [-1, 1), in f64 and the shape of the pixels, for the start of a number. Those of an image
    /// depend only on the seed, the number and the index of the image.
    fn directions(&self, clean: &Clean, number: &[u64]) -> Tensor {
        let count = clean.pixels.numel() / clean.indices.len();
        let of_image = |index: &u32| {
            let place: Vec<u64> = std::iter::once(u64::from(*index)).chain(number.iter().copied()).collect();
            let mut rng = stream(self.seed(), Purpose::Attack, &place);
            (0..count).map(move |_| 2.0 * uniform(&mut rng) - 1.0)
        };
        let values: Vec<f64> = clean.indices.iter().flat_map(of_image).collect();
        Tensor::from_slice(&values).view_as(clean.pixels).to_device(clean.pixels.device())
    }
}

/// The images under attack: pixels `[B, 3, h, w]` in [0, 1], their labels `[B]`, and their indices in the set, which seed
/// random numbers.
pub struct Clean<'a> {
    pub pixels: &'a Tensor,
    pub labels: &'a Tensor,
    pub indices: &'a [u32],
}

/// The loss that an attack raises, at some pixels.
pub struct Slope {
    /// The loss of each image, `[B]`.
    pub losses: Tensor,
    /// The gradient of their sum, `[B, 3, h, w]`.
    pub gradient: Tensor,
}

/// The value of a goal at some pixels, and the scores that it was computed from.
pub struct Scored {
    /// The scores of the classes, `[B, C]`.
    pub scores: Tensor,
    pub slope: Slope,
}

/// A goal: values `[B]` of scores `[B, C]`, through which gradients flow.
pub type Goal<'a> = &'a dyn Fn(&Tensor) -> Tensor;

/// Several goals of the same scores `[B, C]`.
pub type Goals<'a> = &'a dyn Fn(&Tensor) -> Vec<Tensor>;

/// The members under attack as one classifier of pixels `[B, 3, h, w]`. What an image gets does not depend on the others.
pub trait Classifier {
    /// Returns the loss of labels `[B]`, and its gradient.
    ///
    /// # Errors
    /// Fails if the network fails, or if the gradient is not finite.
    fn loss(&self, pixels: &Tensor, labels: &Tensor) -> Result<Slope>;

    /// Returns the scores of the classes, `[B, C]`: logits of the prediction under attack, up to a number for each image.
    ///
    /// # Errors
    /// Fails as `loss` does, or if the target of the attack predicts no class.
    fn scores(&self, pixels: &Tensor) -> Result<Tensor>;

    /// Returns the value of a goal, and its gradient.
    ///
    /// # Errors
    /// Fails as `scores` does.
    fn climb(&self, pixels: &Tensor, goal: Goal) -> Result<Scored>;

    /// Hands the slope of each of several goals to `each`, in order.
    ///
    /// # Errors
    /// Fails as `scores` does.
    fn climbs(&self, pixels: &Tensor, goals: Goals, each: &mut dyn FnMut(Slope)) -> Result<()>;
}

/// Hands the slope of each goal to `each`, with a pass for each of them.
///
/// # Errors
/// Fails if the classifier fails.
fn one_by_one(classifier: &dyn Classifier, pixels: &Tensor, goals: Goals, each: &mut dyn FnMut(Slope)) -> Result<()> {
    let count = goals(&classifier.scores(pixels)?).len();
    (0..count).try_for_each(|at| {
        each(classifier.climb(pixels, &|scores| goals(scores).swap_remove(at))?.slope);
        Ok(())
    })
}

/// A method of moving pixels against a classifier.
pub trait Attack {
    /// Returns the moved pixels `[B, 3, h, w]`, one tensor per epsilon. Each pixel stays within epsilon of the clean
    /// one and within [0, 1].
    ///
    /// # Errors
    /// Fails if the classifier fails.
    fn run(&self, clean: &Clean, epsilons: &[f64], classifier: &dyn Classifier) -> Result<Vec<Tensor>>;

    /// Returns the settings that distinguish two rows, as part of the condition's name; empty if there are none.
    fn settings(&self, epsilon: f64) -> String;

    /// Returns the settings that distinguish two attacks at any budget; empty if there are none.
    fn variant(&self) -> String;
}

/// Checks that there are enough classes for the loss of an attack.
///
/// # Errors
/// Fails if there are too few.
pub fn check_classes(entry: &Entry, classes: usize) -> Result<()> {
    ensure!(
        classes >= entry.classes,
        "--attack {}: its loss compares {} classes, and there are {classes}: use apgd-ce, fab or square, whatever the number of classes",
        entry.key,
        entry.classes
    );
    Ok(())
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
}
