mkdir here; mokscope info here
