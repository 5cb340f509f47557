#include "copus/model/weights.h"

#include "copus/core/error.h"

namespace copus {
namespace {

struct Finder {
  const std::vector<Param>& table;
  const FlatLayout& layout;
  const TensorView& flat;

  TensorView one(Role role, int layer = -1) const { return joined({role}, layer); }

  // Neighbours in the flat buffer as one view: rows of matrices under each other, vectors end to
  // end.
  TensorView joined(std::initializer_list<Role> roles, int layer) const {
    const LocalParam* first = nullptr;
    std::int64_t rows = 0, numel = 0;
    for (Role role : roles) {
      const LocalParam* p = layout.find(table, role, layer);
      if (p == nullptr) continue;
      if (first == nullptr) first = p;
      COPUS_CHECK(p->offset == first->offset + numel, "q, k, v and gate, up are neighbours");
      rows += p->local_size[0];
      numel += p->numel();
    }
    if (first == nullptr) return {};
    TensorView const view = flat.slice(0, first->offset, numel);
    bool const vector = table[static_cast<std::size_t>(first->param)].dims == 1;
    return vector ? view : view.reshape({rows, first->local_size[1]});
  }
};

}  // namespace

StageWeights stage_weights(const ModelConfig& model, const std::vector<Param>& table,
                           const FlatLayout& layout, const TensorView& flat) {
  Finder const find{table, layout, flat};
  StageWeights w;
  w.embed = find.one(Role::embed);
  w.positions = find.one(Role::positions);
  for (int l = 0; l < model.layers; ++l) {
    LayerWeights layer;
    layer.norm1 = find.one(Role::norm1, l);
    layer.norm1_bias = find.one(Role::norm1_bias, l);
    layer.qkv = find.joined({Role::q, Role::k, Role::v}, l);
    layer.qkv_bias = find.joined({Role::q_bias, Role::k_bias, Role::v_bias}, l);
    layer.attn_out = find.one(Role::attn_out, l);
    layer.attn_out_bias = find.one(Role::attn_out_bias, l);
    layer.norm2 = find.one(Role::norm2, l);
    layer.norm2_bias = find.one(Role::norm2_bias, l);
    layer.gate_up = find.joined({Role::gate, Role::up}, l);
    layer.gate_up_bias = find.one(Role::up_bias, l);
    layer.down = find.one(Role::down, l);
    layer.down_bias = find.one(Role::down_bias, l);
    w.layers.push_back(layer);
  }
  w.final_norm = find.one(Role::final_norm);
  w.final_norm_bias = find.one(Role::final_norm_bias);
  w.head = model.tie_embeddings ? w.embed : find.one(Role::head);
  return w;
}

}  // namespace copus
