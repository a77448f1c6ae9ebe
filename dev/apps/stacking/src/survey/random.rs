//! Random numbers that no upgrade changes: splitmix64, and normal deviates from a table.

/// Splitmix64 (Steele, Lea, Flood 2014). Written here, and not taken from a crate, so that a seed
/// means the same survey after every upgrade.
#[derive(Debug)]
pub(crate) struct SurveyRandom(u64);

impl SurveyRandom {
    /// The stream number `stream` of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed);
        random.0 = random.bits() ^ stream;
        random.0 = random.bits();
        random
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform from `low` up to `high`.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Fisher and Yates.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            // The multiplication maps 64 bits evenly enough to this few places.
            let j = (u128::from(self.bits()) * (i as u128 + 1)) >> 64;
            items.swap(i, j as usize);
        }
    }
}

/// Normal deviates by look-up: the 65,536 quantiles of the standard normal distribution, all
/// equally likely. It reaches to 4.3 sigma, and its variance is right to 1e-4: good enough for the
/// noise of a camera, at four deviates per 64 bits.
#[derive(Debug)]
pub(crate) struct Normal(Vec<f32>);

impl Normal {
    pub(crate) fn new() -> Self {
        let quantile = |i: u32| normal_quantile((f64::from(i) + 0.5) / 65_536.0) as f32;
        Self((0..65_536).map(quantile).collect())
    }

    /// Fills `out` with `mean + sigma × deviate`.
    pub(crate) fn fill(&self, random: &mut SurveyRandom, mean: f32, sigma: f32, out: &mut [f32]) {
        let table: &[f32; 65_536] =
            self.0.as_slice().try_into().expect("built with 65,536 quantiles");
        for four in out.chunks_mut(4) {
            let bits = random.bits();
            for (i, value) in four.iter_mut().enumerate() {
                *value = mean + sigma * table[usize::from((bits >> (16 * i)) as u16)];
            }
        }
    }
}

/// The inverse of the normal distribution function, good to 1e-9: Acklam's rational approximation,
/// which his page "An algorithm for computing the inverse normal cumulative distribution function"
/// gives with these coefficients.
#[expect(clippy::excessive_precision)] // As published, to be compared digit by digit.
fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.383577518672690e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const B: [f64; 6] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const D: [f64; 5] =
        [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0];
    const TAIL: f64 = 0.02425;
    let polynomial =
        |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    let tail = |p: f64| {
        let q = (-2.0 * p.ln()).sqrt();
        polynomial(&C, q) / polynomial(&D, q)
    };
    if p < TAIL {
        tail(p)
    } else if p > 1.0 - TAIL {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        q * polynomial(&A, q * q) / polynomial(&B, q * q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviates_are_normal() {
        let mut values = vec![0.0; 400_000];
        Normal::new().fill(&mut SurveyRandom::new(1, 2), 10.0, 2.0, &mut values);
        let within = |sigmas: f32| {
            values.iter().filter(|&&value| (value - 10.0).abs() < 2.0 * sigmas).count() as f64
                / values.len() as f64
        };
        // Four sigma of a share near one half, of 400,000: 0.003.
        assert!((within(1.0) - 0.6827).abs() < 0.003, "{}", within(1.0));
        assert!((within(2.0) - 0.9545).abs() < 0.0014, "{}", within(2.0));
        assert!((within(3.0) - 0.9973).abs() < 0.0004, "{}", within(3.0));
        let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len() as f64;
        assert!((mean - 10.0).abs() < 0.013, "{mean}");
    }
}
