//! Distortions that are polynomials of two variables: SIP and TPV.

/// Steps of Newton's method. Each doubles the digits, so that few are needed where it succeeds at
/// all.
const MAX_STEPS: usize = 40;

/// Deviation from the wanted value, relative to its size, at which a solution is exact.
const EXACT: f64 = 1e-13;

/// Deviation, relative to the size of the wanted value, up to which a solution is one: roundings
/// add up.
const GOOD: f64 = 1e-9;

/// `factor × u^a × v^b × r^c`, where r is the distance of (u, v) from (0, 0).
#[derive(Clone, Debug)]
pub struct Term {
    /// The factor.
    pub factor: f64,
    /// The exponents a, b and c.
    pub powers: [i32; 3],
}

/// A sum of terms for each of two coordinates.
#[derive(Clone, Debug)]
pub struct Polynomials(pub [Vec<Term>; 2]);

impl Term {
    fn value(&self, u: f64, v: f64) -> f64 {
        let [a, b, c] = self.powers;
        self.factor * u.powi(a) * v.powi(b) * u.hypot(v).powi(c)
    }

    /// Derivatives by u and v.
    fn slopes(&self, u: f64, v: f64) -> [f64; 2] {
        let [a, b, c] = self.powers;
        let r = u.hypot(v);
        // d(r^c)/du = c u r^(c-2), which is 0 in the middle for all c > 1, and is taken as 0 for c
        // = 1.
        let radial = if c == 0 || r == 0.0 { 0.0 } else { f64::from(c) * r.powi(c - 2) };
        let power = |base: f64, exponent: i32| if exponent < 0 { 0.0 } else { base.powi(exponent) };
        let (both, far) = (u.powi(a) * v.powi(b), r.powi(c));
        let by_u = f64::from(a) * power(u, a - 1) * v.powi(b) * far + both * radial * u;
        let by_v = f64::from(b) * power(v, b - 1) * u.powi(a) * far + both * radial * v;
        [self.factor * by_u, self.factor * by_v]
    }
}

impl Polynomials {
    /// The distorted place of `(u, v)`.
    pub fn at(&self, [u, v]: [f64; 2]) -> [f64; 2] {
        self.0.each_ref().map(|terms| terms.iter().map(|term| term.value(u, v)).sum())
    }

    fn slopes(&self, [u, v]: [f64; 2]) -> [[f64; 2]; 2] {
        self.0.each_ref().map(|terms| {
            terms
                .iter()
                .map(|term| term.slopes(u, v))
                .fold([0.0, 0.0], |sum, add| [sum[0] + add[0], sum[1] + add[1]])
        })
    }

    /// The place whose distorted place is `wanted`, by Newton's method from there, as distortions
    /// are small. None if it does not converge.
    ///
    /// Headers with SIP may have polynomials for this direction (AP, BP). They only approximate the
    /// inverse, so that pixels would not return to where they were.
    pub fn solve(&self, wanted: [f64; 2]) -> Option<[f64; 2]> {
        let size = 1.0 + wanted[0].hypot(wanted[1]);
        let miss = |place: [f64; 2]| {
            let [u, v] = self.at(place);
            [u - wanted[0], v - wanted[1]]
        };
        let mut place = wanted;
        let mut off = miss(place);
        for _ in 0..MAX_STEPS {
            let error = off[0].hypot(off[1]);
            if error <= EXACT * size {
                break;
            }
            let [[a, b], [c, d]] = self.slopes(place);
            let determinant = a * d - b * c;
            let step =
                [(d * off[0] - b * off[1]) / determinant, (a * off[1] - c * off[0]) / determinant];
            // A step that leads away from the solution is made shorter.
            let shorter = (0..8).map(|halvings| 0.5_f64.powi(halvings)).find_map(|share| {
                let next = [place[0] - share * step[0], place[1] - share * step[1]];
                let off = miss(next);
                (off[0].hypot(off[1]) < error).then_some((next, off))
            });
            let Some(better) = shorter else { break };
            (place, off) = better;
        }
        (off[0].hypot(off[1]) <= GOOD * size).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_values() {
        let term = |powers| Term { factor: 0.7, powers };
        for powers in [[0, 0, 0], [1, 0, 0], [0, 1, 0], [2, 3, 0], [0, 0, 1], [0, 0, 5], [1, 2, 3]]
        {
            let (u, v, step) = (0.4, -1.3, 1e-6);
            let by_u =
                (term(powers).value(u + step, v) - term(powers).value(u - step, v)) / (2.0 * step);
            let by_v =
                (term(powers).value(u, v + step) - term(powers).value(u, v - step)) / (2.0 * step);
            let [found_u, found_v] = term(powers).slopes(u, v);
            assert!((found_u - by_u).abs() < 1e-8 && (found_v - by_v).abs() < 1e-8, "{powers:?}");
        }
        assert_eq!(term([0, 0, 1]).slopes(0.0, 0.0), [0.0, 0.0]);
    }

    #[test]
    fn a_distortion_is_undone_or_said_to_be_none() {
        let terms = |square| {
            vec![
                Term { factor: 1.0, powers: [1, 0, 0] },
                Term { factor: square, powers: [2, 0, 0] },
            ]
        };
        let other =
            vec![Term { factor: 1.0, powers: [0, 1, 0] }, Term { factor: 1e-3, powers: [1, 1, 0] }];
        let distortion = Polynomials([terms(1e-2), other.clone()]);
        let place = distortion.solve(distortion.at([12.0, -7.0])).unwrap();
        assert!((place[0] - 12.0).abs() < 1e-12 && (place[1] + 7.0).abs() < 1e-12);
        // u - u² is never above 1/4.
        assert_eq!(Polynomials([terms(-1.0), other]).solve([0.3, 0.0]), None);
    }
}
