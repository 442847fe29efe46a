//! The parts of an attack: its entry and settings, the classifier that it sees, and the ball in which it stays.

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::base::random::{Purpose, stream, uniform};
use crate::base::small::Usage;
use crate::schema::{keyed, words};

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

keyed!(Entry, "attack");

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

/// The setting that an attack reads if its first start is the image, and its further ones are random.
pub const SEED_OF_RESTARTS: &str = "seed of restarts";

/// The number of classes that a targeted attack aims at, unless it is set.
const TARGETS: usize = 9;

words! {
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
    pub(super) fn starts(&self) -> u64 {
        self.restarts.unwrap_or(1) as u64
    }

    /// Returns the ranks of the classes to aim at, each with the numbers of its starts. Rank 0 is the predicted class.
    pub(super) fn aims(&self) -> impl Iterator<Item = (usize, u64)> + use<> {
        let starts = self.starts();
        (1..=self.targets.unwrap_or(TARGETS)).flat_map(move |target| (0..starts).map(move |number| (target, number)))
    }

    pub(super) fn words_of_starts(&self) -> String {
        self.restarts.filter(|count| *count > 1).map_or(String::new(), |count| format!(" {count} starts"))
    }

    pub(super) fn words_of_targets(&self) -> String {
        self.targets.filter(|count| *count != TARGETS).map_or(String::new(), |count| format!(" {count} targets"))
    }

    pub(super) fn words_of_steps(&self, default: usize) -> String {
        format!(" {} steps{}{}", self.steps.unwrap_or(default), self.words_of_starts(), self.start_words())
    }

    /// Returns the words of the starting point, which are absent for the default one.
    pub(super) fn start_words(&self) -> String {
        if self.from_image { " from the image".to_string() } else { self.seed_words() }
    }

    /// Returns the words of a seed, which are absent for the default one.
    pub(super) fn seed_words(&self) -> String {
        if self.seed() == 0 { String::new() } else { format!(" seed {}", self.seed()) }
    }

    /// Returns the seed of random numbers.
    pub(super) fn seed(&self) -> u64 {
        self.seed.unwrap_or(0)
    }

    /// Returns [`directions`](Self::directions) whose largest number is 1 in every image.
    pub(super) fn unit_directions(&self, clean: &Clean, number: &[u64]) -> Tensor {
        let directions = self.directions(clean, number);
        let largest = directions.abs().amax([1i64, 2, 3].as_slice(), true) + 1e-12;
        directions / largest
    }

    /// Returns uniform numbers in [-1, 1), in f64 and the shape of the pixels, for the start of a number. Those of an image
    /// depend only on the seed, the number and the index of the image.
    pub(super) fn directions(&self, clean: &Clean, number: &[u64]) -> Tensor {
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
pub(super) fn one_by_one(
    classifier: &dyn Classifier,
    pixels: &Tensor,
    goals: Goals,
    each: &mut dyn FnMut(Slope),
) -> Result<()> {
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

/// Returns the pixels nearest to `moved` (f64) that lie in [0, 1] and differ from the clean ones by at most epsilon,
/// exactly. Where rounding to the type of the pixels would leave the ball, the next number inside it is taken.
pub(super) fn project(clean: &Tensor, moved: &Tensor, epsilon: f64) -> Tensor {
    let centre = clean.to_kind(Kind::Double);
    let inside = moved.maximum(&(&centre - epsilon)).minimum(&(&centre + epsilon)).clamp(0.0, 1.0);
    let rounded = inside.to_kind(clean.kind());
    let over = (rounded.to_kind(Kind::Double) - &centre).abs().gt(epsilon);
    rounded.nextafter(clean).where_self(&over, &rounded)
}
