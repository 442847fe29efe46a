//! Auto-PGD (Croce and Hein 2020, arXiv 2003.01690, Algorithm 1): signed steps with momentum, whose size starts at 2 epsilon and is
//! halved for an image where the loss rises too rarely between two checks; the image then goes on from its best point.

use anyhow::Result;
use tch::{Kind, Tensor};

use super::resisting::{On, Resisting, of_class};
use super::{Goal, Scored, Settings, project};

/// The share of rising steps between two checks below which a step is halved, the rho of the paper.
const RHO: f64 = 0.75;

/// The share of a new step beside that of the last one, the alpha of the paper.
const MOMENTUM: f64 = 0.75;

/// Numbers in f64 that a walk keeps for each number of a pixel.
pub(super) const KEPT: u64 = 10;

/// The number of steps of one start, unless it is set.
pub(super) const STEPS: usize = 100;

/// The images after a walk.
pub(super) struct Walk {
    /// The points with the highest loss, `[B, 3, h, w]`, by which tests compare walks.
    #[cfg(test)]
    pub best: Tensor,
    /// The last points that are predicted wrongly, `[B, 3, h, w]`; the start where there was none.
    pub wrong: Tensor,
}

/// Returns a random start: a point on the sphere of radius epsilon around each image.
pub(super) fn start(on: &On, settings: &Settings, number: &[u64]) -> Tensor {
    if settings.from_image {
        return on.clean.pixels.shallow_clone();
    }
    let directions = settings.unit_directions(on.clean, number);
    project(on.clean.pixels, &(on.clean.pixels.to_kind(Kind::Double) + directions * on.epsilon), on.epsilon)
}

/// Climbs `goal` from `start` for so many steps.
///
/// # Errors
/// Fails if the classifier fails.
pub(super) fn walk(on: &On, steps: usize, start: &Tensor, goal: Goal) -> Result<Walk> {
    let share = |of: f64| ((of * steps as f64) as usize).max(1);
    let (mut between, shorter, shortest) = (share(0.22), share(0.03), share(0.06));
    let mut walker = Walker::at(on, start, goal)?;
    let mut since = 0;
    for step in 0..steps {
        walker.step(on, goal, if step == 0 { 1.0 } else { MOMENTUM })?;
        since += 1;
        if since == between {
            walker.check(between);
            between = between.saturating_sub(shorter).max(shortest);
            since = 0;
        }
    }
    Ok(Walk {
        #[cfg(test)]
        best: walker.best,
        wrong: walker.wrong,
    })
}

/// Climbs a loss of scores `[B, C]` and labels `[B]` from each start.
///
/// # Errors
/// Fails if the classifier fails.
pub(super) fn climb_from_starts(
    images: &mut Resisting,
    settings: &Settings,
    loss: fn(&Tensor, &Tensor) -> Tensor,
) -> Result<()> {
    let steps = settings.steps.unwrap_or(STEPS);
    (0..settings.starts()).try_for_each(|number| {
        images.attack(&|on| {
            let goal = |scores: &Tensor| loss(scores, on.clean.labels);
            Ok(walk(on, steps, &start(on, settings, &[number]), &goal)?.wrong)
        })
    })
}

/// A walk in progress.
struct Walker {
    x: Tensor,
    before: Tensor,
    best: Tensor,
    wrong: Tensor,
    gradient: Tensor,
    best_gradient: Tensor,
    /// The highest loss so far, and that at the last check, `[B]`.
    highest: Tensor,
    highest_at_check: Tensor,
    /// Whether the last check has halved the step, `[B]`.
    halved: Tensor,
    /// The losses after each step since the last check, with the one before them, each `[B]`.
    losses: Vec<Tensor>,
    /// The sizes of the steps, `[B, 1, 1, 1]` in f64.
    size: Tensor,
}

impl Walker {
    fn at(on: &On, start: &Tensor, goal: Goal) -> Result<Walker> {
        let Scored { slope, .. } = on.classifier.climb(start, goal)?;
        let again = || start.shallow_clone();
        let images = start.size()[0];
        Ok(Walker {
            x: again(),
            before: again(),
            best: again(),
            wrong: again(),
            best_gradient: slope.gradient.shallow_clone(),
            highest_at_check: slope.losses.shallow_clone(),
            halved: Tensor::ones([images], (Kind::Bool, start.device())),
            // The authors' code compares the loss after the first step with 0.
            losses: vec![slope.losses.zeros_like()],
            size: Tensor::full([images, 1, 1, 1], 2.0 * on.epsilon, (Kind::Double, start.device())),
            gradient: slope.gradient,
            highest: slope.losses,
        })
    }

    fn step(&mut self, on: &On, goal: Goal, share: f64) -> Result<()> {
        let (clean, epsilon) = (on.clean.pixels, on.epsilon);
        let x = self.x.to_kind(Kind::Double);
        let last = &x - self.before.to_kind(Kind::Double);
        let ahead = project(clean, &(&x + &self.size * self.gradient.sign().to_kind(Kind::Double)), epsilon);
        let moved = &x + (ahead.to_kind(Kind::Double) - &x) * share + last * (1.0 - share);
        self.before = self.x.shallow_clone();
        self.x = project(clean, &moved, epsilon);
        let Scored { scores, slope } = on.classifier.climb(&self.x, goal)?;
        let is_wrong = scores.argmax(-1, false).ne_tensor(on.clean.labels);
        self.wrong = self.x.where_self(&of_images(&is_wrong), &self.wrong);
        let is_best = slope.losses.gt_tensor(&self.highest);
        self.best = self.x.where_self(&of_images(&is_best), &self.best);
        self.best_gradient = slope.gradient.where_self(&of_images(&is_best), &self.best_gradient);
        self.highest = slope.losses.where_self(&is_best, &self.highest);
        self.gradient = slope.gradient;
        self.losses.push(slope.losses);
        Ok(())
    }

    /// Halves the steps of images whose loss rose in too few of the last steps, or whose highest loss is that of the last check
    /// although their step was not halved there.
    fn check(&mut self, steps: usize) {
        let rises = self.losses.windows(2).map(|pair| pair[1].gt_tensor(&pair[0]).to_kind(Kind::Double));
        let rises: Tensor = rises.sum();
        let stuck = self.highest_at_check.ge_tensor(&self.highest).logical_and(&self.halved.logical_not());
        self.halved = rises.le(steps as f64 * RHO).logical_or(&stuck);
        self.highest_at_check = self.highest.shallow_clone();
        let halved = of_images(&self.halved);
        self.size = (&self.size / 2.0).where_self(&halved, &self.size);
        self.x = self.best.where_self(&halved, &self.x);
        self.gradient = self.best_gradient.where_self(&halved, &self.gradient);
        self.losses.drain(..self.losses.len() - 1);
    }
}

/// Returns `[B]` as `[B, 1, 1, 1]`.
fn of_images(values: &Tensor) -> Tensor {
    values.view([-1, 1, 1, 1])
}

/// The cross-entropy of the labels.
pub(super) fn cross_entropy(scores: &Tensor, labels: &Tensor) -> Tensor {
    scores.logsumexp([1i64].as_slice(), false) - of_class(scores, labels)
}

/// The difference of logits ratio: −(z_y − max_{i≠y} z_i) / (z_1st − z_3rd).
pub(super) fn dlr(scores: &Tensor, labels: &Tensor) -> Tensor {
    let (sorted, classes) = scores.sort(1, true);
    let of_rank = |rank: i64| sorted.select(1, rank);
    let is_first = classes.select(1, 0).eq_tensor(labels);
    let other = of_rank(1).where_self(&is_first, &of_rank(0));
    -(of_class(scores, labels) - other) / (of_rank(0) - of_rank(2) + 1e-12)
}

/// The targeted one: −(z_y − z_t) / (z_1st − (z_3rd + z_4th) / 2).
pub(super) fn dlr_targeted(scores: &Tensor, labels: &Tensor, targets: &Tensor) -> Tensor {
    let (sorted, _) = scores.sort(1, true);
    let of_rank = |rank: i64| sorted.select(1, rank);
    let spread = of_rank(0) - (of_rank(2) + of_rank(3)) * 0.5 + 1e-12;
    -(of_class(scores, labels) - of_class(scores, targets)) / spread
}
