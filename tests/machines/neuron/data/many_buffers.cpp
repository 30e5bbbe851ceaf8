
      torch::Tensor out = get_dst_tensor();
      auto in = x.tcm_accessor();
      auto to = out.tcm_accessor();
      float* kept = (float*)tcm_malloc(4);
      for (int64_t i = 0; i < x.numel(); ++i) {
        float* t = (float*)tcm_malloc(4);
        in.tensor_to_tcm<float>(t, i, 1);
        *t *= 2;
        *kept = *t;
        to.tcm_to_tensor<float>(kept, i, 1);
        tcm_free(t);
      }
      tcm_free(kept);
      return out;