//! FAB, the fast adaptive boundary attack (Croce and Hein 2020, arXiv 1907.02044) in L∞: it looks for the nearest point that is
//! predicted wrongly, by steps onto the linearised border between two classes, with a bias towards the image.

use anyhow::Result;
use tch::{Kind, Tensor};

use super::resisting::{On, of_class};
use super::{Scored, Settings, Slope};

/// The largest bias towards the image, the overshooting, and the share of the way that is kept after a success.
const BIAS: f64 = 0.1;
const OVERSHOOT: f64 = 1.05;
const BACK: f64 = 0.9;

/// Numbers in f64 that a search keeps for each number of a pixel.
pub(super) const KEPT: u64 = 24;

/// The number of steps of one start, unless it is set.
pub(super) const STEPS: usize = 100;

/// The classes towards which the border is crossed.
pub(super) enum Aim {
    /// The class whose linearised border is the nearest one. It takes a pass backward for each class.
    Nearest,
    /// One class of each image, `[B]`.
    Class(Tensor),
}

/// Returns the start of a number, in f64: the image at first, later random points within epsilon / 2.
pub(super) fn start(on: &On, settings: &Settings, number: &[u64]) -> Tensor {
    let clean = on.clean.pixels.to_kind(Kind::Double);
    if settings.from_image || number.last() == Some(&0) {
        return clean;
    }
    (clean + settings.unit_directions(on.clean, number) * (on.epsilon / 2.0)).clamp(0.0, 1.0)
}

/// Returns the nearest points that are predicted wrongly, in f64; the clean ones where none is within the budget.
///
/// # Errors
/// Fails if the classifier fails.
pub(super) fn search(on: &On, steps: usize, start: Tensor, aim: &Aim) -> Result<Tensor> {
    let (kind, shape) = (on.clean.pixels.kind(), on.clean.pixels.size());
    let image = on.clean.pixels.to_kind(Kind::Double).flatten(1, 3);
    let as_seen = |x: &Tensor| x.view(shape.as_slice()).to_kind(kind);
    let (mut x, mut found) = (start.flatten(1, 3), image.shallow_clone());
    let mut nearest = Tensor::full([shape[0]], f64::INFINITY, (Kind::Double, image.device()));
    for _ in 0..steps {
        let border = Border::near(on, &as_seen(&x), aim)?;
        let offset = (&border.normal * &x).sum_dim_intlist([1i64].as_slice(), false, None) - &border.value;
        let (own, of_image) = (onto(&x, &border.normal, &offset), onto(&image, &border.normal, &offset));
        let far = |step: &Tensor| step.abs().amax([1i64].as_slice(), true).clamp_min(1e-8);
        let (near, far) = (far(&own), far(&of_image));
        let bias = (&near / (&near + far)).clamp(0.0, BIAS);
        let (stepped, pulled): (Tensor, Tensor) = (&x + own * OVERSHOOT, &image + of_image * OVERSHOOT);
        x = (&stepped + (pulled - &stepped) * &bias).clamp(0.0, 1.0);
        let is_wrong = on.classifier.scores(&as_seen(&x))?.argmax(-1, false).ne_tensor(on.clean.labels);
        let distance = (&x - &image).abs().amax([1i64].as_slice(), false);
        let is_nearer = is_wrong.logical_and(&distance.lt_tensor(&nearest));
        found = x.where_self(&is_nearer.unsqueeze(1), &found);
        nearest = distance.where_self(&is_nearer, &nearest);
        x = (&image + (&x - &image) * BACK).where_self(&is_wrong.unsqueeze(1), &x);
    }
    let is_far = nearest.gt(on.epsilon * (1.0 + 1e-6)).unsqueeze(1);
    Ok(image.where_self(&is_far, &found).view(shape.as_slice()))
}

/// A border between the label and another class, linearised: value + normal · (x' − x) = 0.
struct Border {
    /// The score of the other class less that of the label, `[B]` in f64.
    value: Tensor,
    /// Its gradient, `[B, D]` in f64.
    normal: Tensor,
}

impl Border {
    fn near(on: &On, seen: &Tensor, aim: &Aim) -> Result<Border> {
        let labels = on.clean.labels;
        if let Aim::Class(classes) = aim {
            return Border::of(on, seen, classes);
        }
        let goals = |scores: &Tensor| -> Vec<Tensor> {
            let own = of_class(scores, labels);
            (0..scores.size()[1]).map(|class| scores.select(1, class) - &own).collect()
        };
        let (mut nearest, mut class): (Option<(Border, Tensor)>, i64) = (None, 0);
        on.classifier.climbs(seen, &goals, &mut |slope| {
            let border = Border::linear(slope);
            let distance = border.distance();
            let distance = distance.full_like(f64::INFINITY).where_self(&labels.eq(class), &distance);
            nearest = Some(match nearest.take() {
                None => (border, distance),
                Some((best, least)) => {
                    let is_nearer = distance.lt_tensor(&least);
                    let value = border.value.where_self(&is_nearer, &best.value);
                    let normal = border.normal.where_self(&is_nearer.unsqueeze(1), &best.normal);
                    (Border { value, normal }, distance.where_self(&is_nearer, &least))
                }
            });
            class += 1;
        })?;
        nearest.map(|(border, _)| border).ok_or_else(|| anyhow::anyhow!("an attack needs classes"))
    }

    fn of(on: &On, seen: &Tensor, classes: &Tensor) -> Result<Border> {
        let goal = |scores: &Tensor| of_class(scores, classes) - of_class(scores, on.clean.labels);
        let Scored { slope, .. } = on.classifier.climb(seen, &goal)?;
        Ok(Border::linear(slope))
    }

    fn linear(slope: Slope) -> Border {
        let Slope { losses, gradient } = slope;
        Border { value: losses.to_kind(Kind::Double), normal: gradient.to_kind(Kind::Double).flatten(1, 3) }
    }

    /// Returns the distances of the points at which it was linearised, `[B]`.
    fn distance(&self) -> Tensor {
        self.value.abs() / (self.normal.abs().sum_dim_intlist([1i64].as_slice(), false, None) + 1e-12)
    }
}

/// Returns the smallest step in L∞ from points `[B, D]` in [0, 1] onto the plane normal · x = offset within [0, 1], or as near to
/// it as that allows. With the room m_i of each number towards the plane, a step of λ comes nearer by
/// Σ_i |w_i| min(λ, m_i), which is solved for λ piece by piece.
pub(super) fn onto(points: &Tensor, normal: &Tensor, offset: &Tensor) -> Tensor {
    let side = (normal * points).sum_dim_intlist([1i64].as_slice(), true, None) - offset.unsqueeze(1);
    let sign = side.ge(0.0).to_kind(Kind::Double) * 2.0 - 1.0;
    let (towards, gap) = (normal * &sign, side * sign);
    let weight = towards.abs();
    let room = points.where_self(&towards.gt(0.0), &(1.0 - points));
    let (sorted, order) = room.sort(1, false);
    let weights = weight.gather(1, &order, false);
    let product = &weights * &sorted;
    let spent = product.cumsum(1, None) - product;
    let left = weights.sum_dim_intlist([1i64].as_slice(), true, None) - (weights.cumsum(1, None) - &weights);
    let reached = &spent + &sorted * &left;
    let pieces = reached.lt_tensor(&gap).to_kind(Kind::Int64).sum_dim_intlist([1i64].as_slice(), true, None);
    let last = points.size()[1] - 1;
    let at = pieces.clamp_max(last);
    let of_piece = |values: &Tensor| values.gather(1, &at, false);
    let length = ((&gap - of_piece(&spent)) / of_piece(&left)).nan_to_num(0.0, f64::INFINITY, 0.0).clamp_min(0.0);
    let length = length.full_like(f64::INFINITY).where_self(&pieces.gt(last), &length);
    -towards.sign() * length.minimum(&room)
}
