mkdir here; mokscope export here
