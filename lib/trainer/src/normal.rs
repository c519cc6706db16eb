//! Normal draws that are the same on every processor.

use xt_core::random::Stream;

/// The normal deviate with mean 0 and variance 1 at position `index` of `stream`.
///
/// The upper 53 bits of the word give a number strictly between 0 and 1, and the inverse of the normal distribution
/// makes it a deviate: one word, one deviate, whatever was drawn before.
pub fn normal(stream: &Stream, index: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    let uniform = ((stream.word(index) >> 11) as f64 + 0.5) * (1.0 / 9_007_199_254_740_992.0);
    quantile(uniform)
}

/// Inverse of the normal distribution, to about 1 part in 1e16: routine PPND16 of Wichura, "Algorithm AS 241: The
/// Percentage Points of the Normal Distribution", Applied Statistics 37 (1988) 477–484.
///
/// Additions, products, quotients and roots are exactly defined by IEEE 754, and the logarithm is that of the `libm`
/// crate, which uses nothing else: so no processor and no C library changes a bit.
pub fn quantile(probability: f64) -> f64 {
    let centred = probability - 0.5;
    if centred.abs() <= 0.425 {
        let r = 0.180_625 - centred * centred;
        return centred * ratio(r, &CENTRE);
    }
    let tail = if centred < 0.0 { probability } else { 1.0 - probability };
    let r = (-libm::log(tail)).sqrt();
    let deviate = if r <= 5.0 { ratio(r - 1.6, &SHOULDER) } else { ratio(r - 5.0, &TAIL) };
    if centred < 0.0 { -deviate } else { deviate }
}

/// Quotient of two polynomials of degree 7, coefficients from the constant one up.
fn ratio(at: f64, coefficients: &[[f64; 8]; 2]) -> f64 {
    let [above, below] = coefficients.map(|line| line.iter().rev().fold(0.0, |sum, term| sum * at + term));
    above / below
}

// The digits are those of the paper, more than binary64 holds.
#[expect(clippy::excessive_precision, reason = "as published")]
const CENTRE: [[f64; 8]; 2] = [
    [
        3.387_132_872_796_366_608,
        1.331_416_678_917_843_774_5e2,
        1.971_590_950_306_551_442_7e3,
        1.373_169_376_550_946_112_5e4,
        4.592_195_393_154_987_145_7e4,
        6.726_577_092_700_870_085_3e4,
        3.343_057_558_358_812_810_5e4,
        2.509_080_928_730_122_672_7e3,
    ],
    [
        1.0,
        4.231_333_070_160_091_125_2e1,
        6.871_870_074_920_579_083e2,
        5.394_196_021_424_751_107_7e3,
        2.121_379_430_158_659_586_7e4,
        3.930_789_580_009_271_061e4,
        2.872_908_573_572_194_267_4e4,
        5.226_495_278_852_854_561e3,
    ],
];

#[expect(clippy::excessive_precision, reason = "as published")]
const SHOULDER: [[f64; 8]; 2] = [
    [
        1.423_437_110_749_683_577_34,
        4.630_337_846_156_545_295_9,
        5.769_497_221_460_691_405_5,
        3.647_848_324_763_204_605_04,
        1.270_458_252_452_368_382_58,
        2.417_807_251_774_506_117_7e-1,
        2.272_384_498_926_918_458_33e-2,
        7.745_450_142_783_414_076_4e-4,
    ],
    [
        1.0,
        2.053_191_626_637_758_821_87,
        1.676_384_830_183_803_849_4,
        6.897_673_349_851_000_045_5e-1,
        1.481_039_764_274_800_745_9e-1,
        1.519_866_656_361_645_719_66e-2,
        5.475_938_084_995_344_946e-4,
        1.050_750_071_644_416_843_24e-9,
    ],
];

#[expect(clippy::excessive_precision, reason = "as published")]
const TAIL: [[f64; 8]; 2] = [
    [
        6.657_904_643_501_103_777_2,
        5.463_784_911_164_114_369_9,
        1.784_826_539_917_291_335_8,
        2.965_605_718_285_048_912_3e-1,
        2.653_218_952_657_612_309_3e-2,
        1.242_660_947_388_078_438_6e-3,
        2.711_555_568_743_487_578_15e-5,
        2.010_334_399_292_288_132_65e-7,
    ],
    [
        1.0,
        5.998_322_065_558_879_376_9e-1,
        1.369_298_809_227_358_053_1e-1,
        1.487_536_129_085_061_485_25e-2,
        7.868_691_311_456_132_591e-4,
        1.846_318_317_510_054_681_8e-5,
        1.421_511_758_316_445_888_7e-7,
        2.044_263_103_389_939_785_64e-15,
    ],
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The three values that Wichura gives to check an implementation.
    #[test]
    fn the_quantile_gives_the_published_answers() {
        for (probability, expected) in
            [(0.25, -0.674_489_750_196_081_7), (0.001, -3.090_232_306_167_813), (1e-20, -9.262_340_089_798_408)]
        {
            let found = quantile(probability);
            assert!((found - expected).abs() <= 4e-16 * expected.abs(), "{probability}: {found} for {expected}");
        }
        assert_eq!(quantile(0.5), 0.0);
        assert_eq!(quantile(0.75), -quantile(0.25));
    }

    /// Bits, not values near them: these hold on every machine. Python's `NormalDist().inv_cdf` on the same words agrees to
    /// the last place or the one before.
    #[test]
    fn the_first_draws_of_a_stream_have_these_bits() {
        let stream = Stream::new(1, "init/x", 0);
        let bits: Vec<u64> = (0..3).map(|index| normal(&stream, index).to_bits()).collect();
        assert_eq!(bits, [4_604_982_617_736_300_790, 4_610_158_536_347_189_556, 4_603_747_994_069_113_918]);
    }

    #[test]
    fn draws_have_the_moments_of_a_normal_distribution() {
        let stream = Stream::new(7, "moments", 0);
        let count = 200_000;
        let (mut first, mut second, mut fourth, mut beyond) = (0.0, 0.0, 0.0, 0);
        for index in 0..count {
            let draw = normal(&stream, index);
            first += draw;
            second += draw * draw;
            fourth += draw.powi(4);
            beyond += u64::from(draw.abs() > 1.959_963_984_540_054);
        }
        let count = count as f64;
        // Four standard errors of each estimate.
        assert!((first / count).abs() < 4.0 * (1.0 / count).sqrt());
        assert!((second / count - 1.0).abs() < 4.0 * (2.0 / count).sqrt());
        assert!((fourth / count - 3.0).abs() < 4.0 * (96.0 / count).sqrt());
        assert!((beyond as f64 / count - 0.05).abs() < 4.0 * (0.05 * 0.95 / count).sqrt());
    }
}
