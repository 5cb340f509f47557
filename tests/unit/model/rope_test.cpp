// RoPE's angles against the published formulas, computed apart from this program in doubles.
#include "copus/model/rope.h"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>

using namespace copus;

namespace {

using Pair = std::array<double, 2>;  // cosine, sine
struct Row {
  std::int64_t position;
  std::array<Pair, 8> angles;
};

// Heads of width 16, theta 10000.
ModelConfig model_with(const RopeScaling& scaling) {
  ModelConfig model;
  model.hidden = 32;
  model.heads = model.kv_heads = 2;
  model.rope_theta = 10000.0;
  model.rope_scaling = scaling;
  return model;
}

void check_rows(const ModelConfig& model, const std::vector<Row>& rows) {
  std::vector<float> const table = rope_table(model, 1001);
  REQUIRE(table.size() == 1001 * 8 * 2);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < 8; ++i) {
      for (std::size_t part = 0; part < 2; ++part) {
        INFO("position " << row.position << " pair " << i << " part " << part);
        double const found = table[(static_cast<std::size_t>(row.position) * 8 + i) * 2 + part];
        // Rounded once to f32 (half an ulp below 1), from an angle of up to 1000 in doubles.
        CHECK(std::abs(found - row.angles[i][part]) <= 0x1p-25 + 1000.0 * 0x1p-50);
      }
    }
  }
}

}  // namespace

TEST_CASE("linear scaling divides every frequency by the factor") {
  check_rows(model_with({4.0, 1.0, 4.0, 8192, RopeKind::linear}),
             {{1,
               {{{0.9689124217106447, 0.24740395925452294},
                 {0.9968766272651203, 0.07897461625432818},
                 {0.9996875162757026, 0.024997395914712332},
                 {0.9999687501627601, 0.007905611799697562},
                 {0.9999968750016276, 0.002499997395834147},
                 {0.9999996875000162, 0.0007905693326911167},
                 {0.9999999687500002, 0.00024999999739583334},
                 {0.999999996875, 7.90569414218585e-05}}}},
              {37,
               {{{-0.9847651734673236, 0.17388948538043356},
                 {-0.9766583204751677, 0.2147988013156144},
                 {0.6018345923821126, 0.7986207631988143},
                 {0.9575229205559775, 0.2883571684733208},
                 {0.9957249245223883, 0.09236814756659498},
                 {0.9995722180030525, 0.029246897210781244},
                 {0.9999572190550383, 0.009249868091710155},
                 {0.9999957218780504, 0.0029251026643333086}}}},
              {1000,
               {{{0.24098830528525864, -0.9705280195418053},
                 {-0.8692440402659578, -0.4943832505881585},
                 {0.9912028118634736, -0.13235175009777303},
                 {-0.05168947139425779, 0.9986632057640765},
                 {-0.8011436155469337, 0.5984721441039565},
                 {0.7034407157304696, 0.7107539373458333},
                 {0.9689124217106447, 0.24740395925452294},
                 {0.9968766272651203, 0.07897461625432818}}}}});
}

TEST_CASE("llama3 scaling keeps high frequencies, divides low ones, and blends those between") {
  // With 64 positions before: wavelengths of up to 16 are kept, those from 64 on divided by 8.
  check_rows(model_with({8.0, 1.0, 4.0, 64}), {{1,
                                                {{{0.5403023058681398, 0.8414709848078965},
                                                  {0.9702864105582786, 0.24195925583852257},
                                                  {0.9999149509842269, 0.013041886298044003},
                                                  {0.9999921875101725, 0.003952836781345924},
                                                  {0.9999992187501017, 0.001249999674479192},
                                                  {0.999999921875001, 0.0003952846972271749},
                                                  {0.9999999921875, 0.00012499999967447917},
                                                  {0.99999999921875, 3.952847074181087e-05}}}},
                                               {37,
                                                {{{0.7654140519453434, -0.6435381333569995},
                                                  {-0.9277165981614324, 0.37328529772250535},
                                                  {0.885808250944088, 0.4640514438716636},
                                                  {0.9893237388630624, 0.1457344836406649},
                                                  {0.9989306593859226, 0.04623351315664737},
                                                  {0.9998930487814816, 0.014625012768327042},
                                                  {0.9999893047065649, 0.004624983511410864},
                                                  {0.9999989304689406, 0.0014625528964124028}}}},
                                               {1000,
                                                {{{0.5623790762907029, 0.8268795405320025},
                                                  {0.7902205353759897, -0.6128225725853155},
                                                  {0.8888874321449639, 0.45812567377820274},
                                                  {-0.6885893292107212, -0.725151526025512},
                                                  {0.3153223623952687, 0.9489846193555862},
                                                  {0.9228869691707836, 0.38507095727250734},
                                                  {0.992197667229329, 0.12467473338522769},
                                                  {0.9992188517199624, 0.039518177683691924}}}}});
}

TEST_CASE("without scaling the frequencies are theta^(-2i/D)") {
  ModelConfig model = model_with({});
  model.rope_scaling.reset();
  check_rows(model,
             {{10,
               {{{std::cos(10.0), std::sin(10.0)},
                 {std::cos(10.0 * std::pow(10.0, -0.5)), std::sin(10.0 * std::pow(10.0, -0.5))},
                 {std::cos(1.0), std::sin(1.0)},
                 {std::cos(std::pow(10.0, -0.5)), std::sin(std::pow(10.0, -0.5))},
                 {std::cos(0.1), std::sin(0.1)},
                 {std::cos(std::pow(10.0, -1.5)), std::sin(std::pow(10.0, -1.5))},
                 {std::cos(0.01), std::sin(0.01)},
                 {std::cos(std::pow(10.0, -2.5)), std::sin(std::pow(10.0, -2.5))}}}}});
}
