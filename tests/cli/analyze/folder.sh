mkdir here; mokscope analyze here
