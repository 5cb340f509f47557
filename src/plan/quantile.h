// How many standard errors an interval reaches to each side.
#pragma once

namespace copus::detail {

// z with P(|N(0, 1)| <= z) = confidence.
double normal_quantile(double confidence);

// t with P(|T| <= t) = confidence for Student's T with `degrees` of freedom, from the normal z of
// that confidence: Abramowitz and Stegun 26.7.5. Within 0.5 % from 3 degrees up at 0.9, from 7 up
// at 0.999.
double student_quantile(double z, double degrees);

}  // namespace copus::detail
